-- queen_queue_reclaim_v1: one bounded step of removing what deleted queues left behind.
--
-- Called by  brokers/store/calls.py, queue_reclaim(), every few seconds until it answers 0
-- Reads      queen_reclaim
-- Writes     queen_cursor, queen_dead_letter, queen_stream_state, queen_segment, queen_txn_9,
--            queen_wake, queen_reclaim; what queen_stream_reclaim_v1 and queen_timer_reclaim_v1
--            write
-- Locks      queen_reclaim, cursor, dead-letter, stream-state and wake rows, skipping what
--            others hold: brokers share the work and nobody waits.
-- Cost       about p_rows_max rows and 64 MiB of frames.
-- Answers    how many rows were removed, the leftovers' own entries included, and what
--            queen_stream_reclaim_v1 and queen_timer_reclaim_v1 did.
--
-- The order matters. A cursor that somebody holds may stand for an ack which read the
-- partition before it was deleted and is about to write a dead letter, or for a stream's cycle
-- that is about to write state: so cursors go first, dead letters and state are looked for by
-- later statements, and a partition with a held row
-- keeps its entry for the next step. Transaction rows of the shorter windows leave when
-- their slots are truncated; only the last slot is purged by row.

CREATE OR REPLACE FUNCTION queen_queue_reclaim_v1(p_rows_max integer)
RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
    v_id      bigint := 0;
    v_left    bigint := p_rows_max;
    v_bytes   bigint := 67108864;
    v_removed bigint := 0;
    v_count   bigint;
    v_size    bigint;
BEGIN
    WHILE v_left > 0 AND v_bytes > 0 LOOP
        SELECT partition_id INTO v_id
          FROM queen_reclaim
         WHERE partition_id > v_id
         ORDER BY partition_id
         LIMIT 1
           FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;

        DELETE FROM queen_cursor
         WHERE partition_id = v_id
           AND consumer_group = ANY (ARRAY(
               SELECT consumer_group
                 FROM queen_cursor
                WHERE partition_id = v_id
                ORDER BY consumer_group
                LIMIT v_left
                  FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_removed := v_removed + v_count;
        v_left := v_left - v_count;
        EXIT WHEN v_left <= 0;
        CONTINUE WHEN EXISTS (SELECT FROM queen_cursor WHERE partition_id = v_id);

        DELETE FROM queen_dead_letter
         WHERE id = ANY (ARRAY(
               SELECT id FROM queen_dead_letter
                WHERE partition_id = v_id
                LIMIT v_left
                  FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_removed := v_removed + v_count;
        v_left := v_left - v_count;
        EXIT WHEN v_left <= 0;
        CONTINUE WHEN EXISTS (SELECT FROM queen_dead_letter WHERE partition_id = v_id);

        DELETE FROM queen_stream_state
         WHERE ctid = ANY (ARRAY(
               SELECT ctid FROM queen_stream_state
                WHERE partition_id = v_id
                LIMIT v_left
                  FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_removed := v_removed + v_count;
        v_left := v_left - v_count;
        EXIT WHEN v_left <= 0;
        CONTINUE WHEN EXISTS (SELECT FROM queen_stream_state WHERE partition_id = v_id);

        WITH removed AS (
            DELETE FROM queen_segment
             WHERE partition_id = v_id
               AND base_offset = ANY (ARRAY(
                   SELECT sized.base_offset
                     FROM (
                       SELECT oldest.base_offset,
                              sum(oldest.size) OVER (ORDER BY oldest.base_offset)
                              - oldest.size AS before
                         FROM (
                           SELECT base_offset, octet_length(frames) AS size
                             FROM queen_segment
                            WHERE partition_id = v_id
                            ORDER BY base_offset
                            LIMIT v_left) AS oldest
                     ) AS sized
                    WHERE sized.before < v_bytes))
            RETURNING octet_length(frames) AS size
        )
        SELECT count(*), coalesce(sum(size), 0) INTO v_count, v_size FROM removed;
        v_removed := v_removed + v_count;
        v_left := v_left - v_count;
        v_bytes := v_bytes - v_size;
        EXIT WHEN v_left <= 0 OR v_bytes <= 0;

        DELETE FROM queen_txn_9
         WHERE ctid = ANY (ARRAY(
               SELECT ctid FROM queen_txn_9 WHERE partition_id = v_id LIMIT v_left));
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_removed := v_removed + v_count;
        v_left := v_left - v_count;
        EXIT WHEN v_left <= 0;

        DELETE FROM queen_reclaim WHERE partition_id = v_id;
        v_removed := v_removed + 1;
        v_left := v_left - 1;
    END LOOP;

    -- A nack that was under way during the delete has put its wake row back.
    IF v_removed > 0 AND NOT EXISTS (SELECT FROM queen_reclaim) THEN
        DELETE FROM queen_wake
         WHERE ctid = ANY (ARRAY(
               SELECT wake.ctid
                 FROM queen_wake wake
                WHERE NOT EXISTS (SELECT FROM queen_queue queue WHERE queue.id = wake.queue_id)
                  FOR UPDATE OF wake SKIP LOCKED));
    END IF;
    v_count := queen_stream_reclaim_v1(v_left);
    RETURN v_removed + v_count + queen_timer_reclaim_v1(v_left - v_count);
END;
$$;
