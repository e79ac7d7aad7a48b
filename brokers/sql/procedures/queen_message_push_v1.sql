-- queen_message_push_v1: append one flush: for each partition of it, its messages in order.
--
-- Called by  brokers/store/calls.py, message_push(); queen_message_push_one_v1;
--            queen_transaction_commit_v1;
--            queen_timer_fire_v1; queen_dead_letter_replay_v1; queen_spool_replay_v1;
--            queen_stream_cycle_v1; queen_redrive_step_v1
-- Reads      queen_queue, queen_partition, queen_txn, queen_segment (originals of duplicates)
-- Writes     queen_segment, queen_txn, queen_partition
-- Locks      partition rows in ascending id, in one statement. With p_wait_ms = 0 rows held
--            by others are skipped and answered `busy`; else waits that long for each, then
--            fails with 55P03.
-- Cost       four statements whatever the number of groups and messages; duplicates
--            cost a loop over their groups.
-- Answers    one row per group, numbered as asked from 1:
--              stored  base_offset is the first message's offset (null: all were duplicates)
--              stale   the queue or partition is gone or was configured since: reload, repeat
--              busy    somebody holds the partition's row
--              full    the queue enforces a maxSize that these messages would pass; divisible:
--                      some of them may fit or be duplicates, so that halves are worth asking
--            duplicate_* describe the messages of the group that were not written:
--            position (from 0), the original's id (nil when not retained), and whether the
--            original is in this very flush.
-- Raises     55P03 when a waited-for lock is not had in time.
--
-- p_transactions holds the canonical literals of a group joined by chr(30). Ids rise
-- along a group (the caller cuts it where they do not), and a group names a partition
-- once. The clock is read after the locks are ours. created_at never goes back along a
-- partition, and is a whole millisecond later whenever the first id is not above the
-- partition's last, so that (created_at in ms, id) never decreases.
-- A queue without a window asks for nothing, even when a clock that was put back makes what it
-- stored look newer than now. Without p_dedup nobody asks whether a transactionId was seen
-- before; it is remembered all the same; and no queue is full for what was accepted long ago
-- (spool, timers). p_accepted, one time a message (and only without p_dedup), is when it shall
-- count as seen; null: now.

CREATE OR REPLACE FUNCTION queen_message_push_v1(
    p_partition_ids bigint[],
    p_queue_ids     bigint[],
    p_versions      bigint[],
    p_frames        bytea[],
    p_ends          bytea[],
    p_transactions  text[],
    p_flags         bytea[],
    p_first_ids     uuid[],
    p_last_ids      uuid[],
    p_wait_ms       integer,
    p_dedup         boolean,
    p_accepted      timestamptz[]
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
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_locked   bigint[];
    v_verdicts text[];
    v_windows  bigint[];
    v_classes  smallint[];
    v_direct   smallint;
    v_bounded  boolean;
    v_full     integer[] := '{}';
    v_divided  boolean[];
    v_nos      integer[];
    v_lanes    bigint[];
    v_hashes   bigint[];
    v_now      timestamptz;
    v_filling  smallint[];
    v_suspects integer[] := '{}';
    v_bases    bigint[];
    v_group    integer;
    v_stored   record;
BEGIN
    IF p_wait_ms > 0 THEN
        PERFORM set_config('lock_timeout', p_wait_ms::text, true);
        v_locked := ARRAY(
            SELECT lane.id FROM queen_partition lane
             WHERE lane.id = ANY (p_partition_ids)
             ORDER BY lane.id
               FOR UPDATE);
    ELSE
        v_locked := ARRAY(
            SELECT lane.id FROM queen_partition lane
             WHERE lane.id = ANY (p_partition_ids)
             ORDER BY lane.id
               FOR UPDATE SKIP LOCKED);
    END IF;

    v_now := clock_timestamp();
    v_filling := queen_txn_slots_v1(v_now);

    -- Judged after the locks: a configure or delete that came first is seen here. Who is held is
    -- asked by a hashed subplan: a join would be a nested loop, quadratic in the groups.
    SELECT array_agg(
               CASE WHEN lane.id IS NULL OR queue.id IS NULL
                      OR queue.config_version <> asked.version THEN 'stale'
                    WHEN cardinality(v_locked) = cardinality(p_partition_ids)
                      OR asked.partition_id IN (SELECT unnest(v_locked)) THEN 'stored'
                    ELSE 'busy'
               END ORDER BY asked.no),
           array_agg(coalesce(queue.dedup_window_seconds, 0) ORDER BY asked.no),
           array_agg(coalesce(queue.txn_class, 0::smallint) ORDER BY asked.no),
           CASE WHEN NOT coalesce(bool_or(queue.txn_class <> 0 OR queue.txn_class_mixed), false)
                THEN 0
                WHEN NOT bool_or(queue.txn_class <> 4 OR queue.txn_class_mixed) THEN 4
           END,
           p_dedup AND coalesce(bool_or(queue.enforce AND queue.max_size > 0), false)
      INTO v_verdicts, v_windows, v_classes, v_direct, v_bounded
      FROM unnest(p_partition_ids, p_queue_ids, p_versions)
           WITH ORDINALITY AS asked(partition_id, queue_id, version, no)
      LEFT JOIN queen_partition lane
             ON lane.id = asked.partition_id AND lane.queue_id = asked.queue_id
      LEFT JOIN queen_queue queue ON queue.id = lane.queue_id;

    -- Who has been seen before? The slots of the two short classes are named: a plan over the
    -- partitioned table opens all of them, at each call. A queue with a longer window, one that
    -- changed its class while rows of it lay in the other, and a flush with queues of both
    -- classes ask all slots.
    SELECT array_agg(message.no ORDER BY message.no, message.position),
           array_agg(message.partition_id ORDER BY message.no, message.position),
           array_agg(message.hash ORDER BY message.no, message.position)
      INTO v_nos, v_lanes, v_hashes
      FROM (
        SELECT asked.no::integer AS no, asked.partition_id, message.position,
               queen_txn_hash_v1(message.transaction) AS hash
          FROM unnest(p_partition_ids, p_transactions, v_verdicts)
               WITH ORDINALITY AS asked(partition_id, transactions, verdict, no)
         CROSS JOIN LATERAL string_to_table(asked.transactions, chr(30))
                WITH ORDINALITY AS message(transaction, position)
         WHERE asked.verdict = 'stored'
      ) AS message;

    IF NOT p_dedup THEN
        NULL;
    ELSIF v_direct = 0 THEN
        v_suspects := ARRAY(
            SELECT DISTINCT message.no
              FROM unnest(v_nos, v_lanes, v_hashes) AS message(no, partition_id, hash)
             CROSS JOIN LATERAL (
                SELECT known.created_at FROM queen_txn_0 known
                 WHERE known.partition_id = message.partition_id AND known.hash = message.hash
                UNION ALL
                SELECT known.created_at FROM queen_txn_1 known
                 WHERE known.partition_id = message.partition_id AND known.hash = message.hash
                UNION ALL
                SELECT known.created_at FROM queen_txn_2 known
                 WHERE known.partition_id = message.partition_id AND known.hash = message.hash
             ) AS known
             WHERE v_windows[message.no] > 0
               AND known.created_at > v_now - make_interval(secs => v_windows[message.no]));
    ELSIF v_direct = 4 THEN
        v_suspects := ARRAY(
            SELECT DISTINCT message.no
              FROM unnest(v_nos, v_lanes, v_hashes) AS message(no, partition_id, hash)
             CROSS JOIN LATERAL (
                SELECT known.created_at FROM queen_txn_10 known
                 WHERE known.partition_id = message.partition_id AND known.hash = message.hash
                UNION ALL
                SELECT known.created_at FROM queen_txn_11 known
                 WHERE known.partition_id = message.partition_id AND known.hash = message.hash
                UNION ALL
                SELECT known.created_at FROM queen_txn_12 known
                 WHERE known.partition_id = message.partition_id AND known.hash = message.hash
             ) AS known
             WHERE v_windows[message.no] > 0
               AND known.created_at > v_now - make_interval(secs => v_windows[message.no]));
    ELSE
        v_suspects := ARRAY(
            SELECT DISTINCT message.no
              FROM unnest(v_nos, v_lanes, v_hashes) AS message(no, partition_id, hash)
             CROSS JOIN LATERAL (
                SELECT known.created_at FROM queen_txn known
                 WHERE known.partition_id = message.partition_id AND known.hash = message.hash
                OFFSET 0) AS known
             WHERE v_windows[message.no] > 0
               AND known.created_at > v_now - make_interval(secs => v_windows[message.no]));
    END IF;
    IF p_dedup AND cardinality(v_hashes) > cardinality(p_partition_ids) THEN
        v_suspects := v_suspects || ARRAY(
            SELECT DISTINCT twice.no
              FROM (
                SELECT message.no
                  FROM unnest(v_nos, v_hashes) AS message(no, hash)
                 WHERE v_windows[message.no] > 0
                 GROUP BY message.no, message.hash
                HAVING count(*) > 1
              ) AS twice
             WHERE twice.no <> ALL (v_suspects));
    END IF;

    IF v_bounded THEN
        SELECT coalesce(array_agg(full_group.no), '{}'), array_agg(full_group.divisible)
          INTO v_full, v_divided
          FROM queen_push_full_v1(
                   p_partition_ids, p_ends, v_verdicts, v_suspects) AS full_group(no, divisible);
        IF cardinality(v_full) > 0 THEN
            SELECT array_agg(message.no ORDER BY message.index),
                   array_agg(message.partition_id ORDER BY message.index),
                   array_agg(message.hash ORDER BY message.index)
              INTO v_nos, v_lanes, v_hashes
              FROM unnest(v_nos, v_lanes, v_hashes)
                   WITH ORDINALITY AS message(no, partition_id, hash, index)
             WHERE message.no <> ALL (v_full);
            v_suspects := ARRAY(SELECT no FROM unnest(v_suspects) AS no WHERE no <> ALL (v_full));
            v_verdicts := ARRAY(
                SELECT CASE WHEN given.no = ANY (v_full) THEN 'full' ELSE given.verdict END
                  FROM unnest(v_verdicts) WITH ORDINALITY AS given(verdict, no)
                 ORDER BY given.no);
        END IF;
    END IF;

    -- The usual case, all groups in one statement: nothing in them has been seen before.
    WITH asked AS MATERIALIZED (
        SELECT given.no::integer AS no, given.partition_id, given.frames, given.ends, given.flags,
               given.last_id,
               given.verdict = 'stored' AND given.no <> ALL (v_suspects) AS usual,
               lane.last_offset + 1 AS base_offset,
               lane.last_offset + octet_length(given.ends) / 4 AS end_offset,
               CASE WHEN lane.last_id IS NULL OR given.first_id > lane.last_id
                    THEN greatest(v_now, lane.last_created_at)
                    ELSE greatest(v_now, date_trunc('milliseconds', lane.last_created_at)
                                         + interval '1 millisecond')
               END AS created_at
          FROM unnest(p_partition_ids, p_frames, p_ends, p_flags,
                      p_first_ids, p_last_ids, v_verdicts)
               WITH ORDINALITY AS given(partition_id, frames, ends, flags,
                                        first_id, last_id, verdict, no)
          LEFT JOIN queen_partition lane ON lane.id = given.partition_id
    ), written AS (
        INSERT INTO queen_segment (partition_id, base_offset, end_offset, created_at, format,
                                   frames, ends, flags)
        SELECT asked.partition_id, asked.base_offset, asked.end_offset,
               asked.created_at, 1, asked.frames, asked.ends, asked.flags
          FROM asked
         WHERE asked.usual
    ), moved AS (
        UPDATE queen_partition lane
           SET last_offset = asked.end_offset,
               last_created_at = asked.created_at,
               last_id = asked.last_id,
               -- Indexed, so moved at most once a second: the other updates stay HOT.
               last_write_at = CASE WHEN lane.last_write_at > v_now - interval '1 second'
                                    THEN lane.last_write_at ELSE v_now END,
               oldest_live_at = coalesce(lane.oldest_live_at, asked.created_at)
          FROM asked
         WHERE asked.usual AND lane.id = asked.partition_id
    )
    SELECT array_agg(CASE WHEN asked.usual THEN asked.base_offset END ORDER BY asked.no)
      INTO v_bases
      FROM asked;

    IF p_accepted IS NOT NULL THEN
        INSERT INTO queen_txn (partition_id, hash, message_offset, created_at, slot)
        SELECT message.partition_id, message.hash,
               v_bases[message.no] + row_number() OVER (PARTITION BY message.no
                                                        ORDER BY message.index) - 1,
               message.accepted_at, v_filling[v_classes[message.no] + 1]
          FROM unnest(v_nos, v_lanes, v_hashes, p_accepted)
               WITH ORDINALITY AS message(no, partition_id, hash, accepted_at, index)
         -- Shorter when a group is not stored: the caller gives all up then.
         WHERE message.no IS NOT NULL;
    ELSIF v_direct IS NOT NULL AND cardinality(v_suspects) = 0 THEN
        CASE v_filling[v_direct + 1]
            WHEN 0 THEN
                INSERT INTO queen_txn_0 (partition_id, hash, message_offset, created_at, slot)
                SELECT message.partition_id, message.hash,
                       v_bases[message.no] + row_number() OVER (PARTITION BY message.no) - 1,
                       v_now, 0
                  FROM unnest(v_nos, v_lanes, v_hashes) AS message(no, partition_id, hash);
            WHEN 1 THEN
                INSERT INTO queen_txn_1 (partition_id, hash, message_offset, created_at, slot)
                SELECT message.partition_id, message.hash,
                       v_bases[message.no] + row_number() OVER (PARTITION BY message.no) - 1,
                       v_now, 1
                  FROM unnest(v_nos, v_lanes, v_hashes) AS message(no, partition_id, hash);
            WHEN 2 THEN
                INSERT INTO queen_txn_2 (partition_id, hash, message_offset, created_at, slot)
                SELECT message.partition_id, message.hash,
                       v_bases[message.no] + row_number() OVER (PARTITION BY message.no) - 1,
                       v_now, 2
                  FROM unnest(v_nos, v_lanes, v_hashes) AS message(no, partition_id, hash);
            WHEN 10 THEN
                INSERT INTO queen_txn_10 (partition_id, hash, message_offset, created_at, slot)
                SELECT message.partition_id, message.hash,
                       v_bases[message.no] + row_number() OVER (PARTITION BY message.no) - 1,
                       v_now, 10
                  FROM unnest(v_nos, v_lanes, v_hashes) AS message(no, partition_id, hash);
            WHEN 11 THEN
                INSERT INTO queen_txn_11 (partition_id, hash, message_offset, created_at, slot)
                SELECT message.partition_id, message.hash,
                       v_bases[message.no] + row_number() OVER (PARTITION BY message.no) - 1,
                       v_now, 11
                  FROM unnest(v_nos, v_lanes, v_hashes) AS message(no, partition_id, hash);
            ELSE
                INSERT INTO queen_txn_12 (partition_id, hash, message_offset, created_at, slot)
                SELECT message.partition_id, message.hash,
                       v_bases[message.no] + row_number() OVER (PARTITION BY message.no) - 1,
                       v_now, 12
                  FROM unnest(v_nos, v_lanes, v_hashes) AS message(no, partition_id, hash);
        END CASE;
    ELSE
        INSERT INTO queen_txn (partition_id, hash, message_offset, created_at, slot)
        SELECT message.partition_id, message.hash,
               v_bases[message.no] + row_number() OVER (PARTITION BY message.no) - 1,
               v_now, v_filling[v_classes[message.no] + 1]
          FROM unnest(v_nos, v_lanes, v_hashes) AS message(no, partition_id, hash)
         WHERE message.no <> ALL (v_suspects);
    END IF;

    RETURN QUERY
    SELECT given.no::integer, given.verdict, given.base_offset,
           NULL::integer[], NULL::uuid[], NULL::boolean[],
           v_divided[array_position(v_full, given.no::integer)]
      FROM unnest(v_verdicts, v_bases) WITH ORDINALITY AS given(verdict, base_offset, no)
     WHERE given.no <> ALL (v_suspects);

    FOREACH v_group IN ARRAY v_suspects LOOP
        SELECT * INTO v_stored
          FROM queen_segment_append_distinct_v1(
                   p_partition_ids[v_group], p_frames[v_group], p_transactions[v_group],
                   p_flags[v_group], v_now,
                   v_now - make_interval(secs => v_windows[v_group]),
                   v_filling[v_classes[v_group] + 1]);
        group_no := v_group;
        verdict := 'stored';
        base_offset := v_stored.base_offset;
        duplicate_positions := v_stored.duplicate_positions;
        duplicate_ids := v_stored.duplicate_ids;
        duplicate_inside := v_stored.duplicate_inside;
        RETURN NEXT;
    END LOOP;
END;
$$;
