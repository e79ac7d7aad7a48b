-- queen_message_push_one_v1: append a flush of one message, the usual case at little cost.
--
-- Called by  brokers/store/calls.py, message_push()
-- Reads      queen_queue, queen_partition, queen_txn
-- Writes     queen_segment, queen_txn, queen_partition
-- Locks      the partition's row; if somebody holds it, it is not waited for.
-- Cost       six small statements, without an array or a join: a third of what
--            queen_message_push_v1 takes for the same.
-- Answers    one row, as queen_message_push_v1 does for a flush of one group.
--
-- A push that finds nothing in flight is such a flush. Whatever is not usual is handed to
-- queen_message_push_v1 before anything is written, and decided there alone: a row that is held or
-- gone, ids or a version that are out of date, a hash that was seen in the window, a bound of the
-- queue, and transaction rows of a class other than the two short ones.

CREATE OR REPLACE FUNCTION queen_message_push_one_v1(
    p_partition_id bigint,
    p_queue_id     bigint,
    p_version      bigint,
    p_frame        bytea,
    p_ends         bytea,
    p_transaction  text,
    p_flags        bytea,
    p_id           uuid
)
RETURNS TABLE (
    group_no integer, verdict text, base_offset bigint,
    duplicate_positions integer[], duplicate_ids uuid[], duplicate_inside boolean[],
    divisible boolean
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_usual   boolean;
    v_offset  bigint;
    v_created timestamptz;
    v_last_id uuid;
    v_now     timestamptz;
    v_window  bigint;
    v_class   smallint;
    v_hash    bigint := queen_txn_hash_v1(p_transaction);
    v_since   timestamptz;
BEGIN
    SELECT lane.last_offset + 1, lane.last_created_at, lane.last_id
      INTO v_offset, v_created, v_last_id
      FROM queen_partition lane
     WHERE lane.id = p_partition_id AND lane.queue_id = p_queue_id
       FOR UPDATE SKIP LOCKED;
    v_now := clock_timestamp();

    -- Judged after the lock: a configure or delete that came first is seen here.
    IF FOUND THEN
        SELECT queue.dedup_window_seconds, queue.txn_class
          INTO v_window, v_class
          FROM queen_queue queue
         WHERE queue.id = p_queue_id AND queue.config_version = p_version
           AND queue.txn_class IN (0, 4) AND NOT queue.txn_class_mixed
           AND NOT (queue.enforce AND queue.max_size > 0);
        v_usual := FOUND;
    END IF;

    IF v_usual AND v_window > 0 THEN
        v_since := v_now - make_interval(secs => v_window);
        IF v_class = 0 THEN
            v_usual := NOT EXISTS (
                SELECT 1 FROM queen_txn_0 known
                 WHERE known.partition_id = p_partition_id AND known.hash = v_hash
                   AND known.created_at > v_since
                UNION ALL
                SELECT 1 FROM queen_txn_1 known
                 WHERE known.partition_id = p_partition_id AND known.hash = v_hash
                   AND known.created_at > v_since
                UNION ALL
                SELECT 1 FROM queen_txn_2 known
                 WHERE known.partition_id = p_partition_id AND known.hash = v_hash
                   AND known.created_at > v_since);
        ELSE
            v_usual := NOT EXISTS (
                SELECT 1 FROM queen_txn_10 known
                 WHERE known.partition_id = p_partition_id AND known.hash = v_hash
                   AND known.created_at > v_since
                UNION ALL
                SELECT 1 FROM queen_txn_11 known
                 WHERE known.partition_id = p_partition_id AND known.hash = v_hash
                   AND known.created_at > v_since
                UNION ALL
                SELECT 1 FROM queen_txn_12 known
                 WHERE known.partition_id = p_partition_id AND known.hash = v_hash
                   AND known.created_at > v_since);
        END IF;
    END IF;

    IF v_usual IS NOT TRUE THEN
        RETURN QUERY
        SELECT *
          FROM queen_message_push_v1(
                   ARRAY[p_partition_id], ARRAY[p_queue_id], ARRAY[p_version], ARRAY[p_frame],
                   ARRAY[p_ends], ARRAY[p_transaction], ARRAY[p_flags], ARRAY[p_id], ARRAY[p_id],
                   0, true, NULL);
        RETURN;
    END IF;

    v_created := CASE WHEN v_last_id IS NULL OR p_id > v_last_id THEN greatest(v_now, v_created)
                      ELSE greatest(v_now, date_trunc('milliseconds', v_created)
                                           + interval '1 millisecond')
                 END;
    INSERT INTO queen_segment (partition_id, base_offset, end_offset, created_at, format,
                               frames, ends, flags)
    VALUES (p_partition_id, v_offset, v_offset, v_created, 1, p_frame, p_ends, p_flags);
    UPDATE queen_partition lane
       SET last_offset = v_offset,
           last_created_at = v_created,
           last_id = p_id,
           -- Indexed, so moved at most once a second: the other updates stay HOT.
           last_write_at = CASE WHEN lane.last_write_at > v_now - interval '1 second'
                                THEN lane.last_write_at ELSE v_now END,
           oldest_live_at = coalesce(lane.oldest_live_at, v_created)
     WHERE lane.id = p_partition_id;
    CASE (queen_txn_slots_v1(v_now))[v_class + 1]
        WHEN 0 THEN
            INSERT INTO queen_txn_0 (partition_id, hash, message_offset, created_at, slot)
            VALUES (p_partition_id, v_hash, v_offset, v_now, 0);
        WHEN 1 THEN
            INSERT INTO queen_txn_1 (partition_id, hash, message_offset, created_at, slot)
            VALUES (p_partition_id, v_hash, v_offset, v_now, 1);
        WHEN 2 THEN
            INSERT INTO queen_txn_2 (partition_id, hash, message_offset, created_at, slot)
            VALUES (p_partition_id, v_hash, v_offset, v_now, 2);
        WHEN 10 THEN
            INSERT INTO queen_txn_10 (partition_id, hash, message_offset, created_at, slot)
            VALUES (p_partition_id, v_hash, v_offset, v_now, 10);
        WHEN 11 THEN
            INSERT INTO queen_txn_11 (partition_id, hash, message_offset, created_at, slot)
            VALUES (p_partition_id, v_hash, v_offset, v_now, 11);
        ELSE
            INSERT INTO queen_txn_12 (partition_id, hash, message_offset, created_at, slot)
            VALUES (p_partition_id, v_hash, v_offset, v_now, 12);
    END CASE;

    group_no := 1;
    verdict := 'stored';
    base_offset := v_offset;
    RETURN NEXT;
END;
$$;
