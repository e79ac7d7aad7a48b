-- queen_partition_cleanup_v1: one bounded step of removing partitions that are long empty.
--
-- Called by  brokers/store/leader_calls.py, partition_cleanup()
-- Reads      queen_lease, queen_partition, queen_queue, queen_cursor, queen_dead_letter,
--            queen_stream_state
-- Writes     queen_partition, queen_reclaim, queen_retention_history
-- Locks      the queue's row, then the partition's, then its cursors, each only when nobody has
--            it: a push goes first, and a partition that is born or a group that registers
--            keeps us out, and so does an ack or a stream's cycle.
-- Cost       p_rows_max partitions of the index of empty ones, with three probes each.
-- Answers    one row: how many were removed, and where to go on (both null: begin anew).
--
-- Idle is counted from the last push, or the birth. A partition stays while a dead letter points at
-- it, while a stream keeps state of it, while a lease on it is live, and while its queue would
-- still recognise a transactionId of it: a new partition of the name knows none.
-- Who writes a dead letter or state has a cursor: both are looked for again once all are ours. Its cursors are left to queen_queue_reclaim_v1,
-- like those of a deleted queue. A push to the old id is answered `stale`, finds no partition of
-- the name and makes one, from offset 0.

CREATE OR REPLACE FUNCTION queen_partition_cleanup_v1(
    p_token      bigint,
    p_idle_s     bigint,
    p_rows_max   integer,
    p_after_at   timestamptz,
    p_after_id   bigint
)
RETURNS TABLE (removed bigint, reached_at timestamptz, reached_id bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_now     timestamptz := clock_timestamp();
    v_looked  integer := 0;
    v_had     integer;
    v_lane    record;
BEGIN
    removed := 0;
    IF NOT queen_lease_held_v1('retention', p_token) THEN
        RETURN NEXT;
        RETURN;
    END IF;
    FOR v_lane IN
        SELECT lane.id, lane.queue_id, coalesce(lane.last_write_at, lane.created_at) AS idle_at
          FROM queen_partition lane
         WHERE lane.oldest_live_at IS NULL
           AND (coalesce(lane.last_write_at, lane.created_at), lane.id)
               > (coalesce(p_after_at, '-infinity'), coalesce(p_after_id, 0))
           AND coalesce(lane.last_write_at, lane.created_at)
               < v_now - make_interval(secs => p_idle_s)
         ORDER BY coalesce(lane.last_write_at, lane.created_at), lane.id
         LIMIT p_rows_max
    LOOP
        v_looked := v_looked + 1;
        reached_at := v_lane.idle_at;
        reached_id := v_lane.id;
        CONTINUE WHEN EXISTS (SELECT FROM queen_dead_letter WHERE partition_id = v_lane.id)
                   OR EXISTS (SELECT FROM queen_stream_state WHERE partition_id = v_lane.id);
        PERFORM 1 FROM queen_queue
          WHERE id = v_lane.queue_id
            -- The last push may have been a second later: last_write_at is moved no more often.
            AND v_lane.idle_at < v_now - make_interval(secs => dedup_window_seconds + 1)
            FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        PERFORM 1 FROM queen_partition
          WHERE id = v_lane.id AND last_offset < log_start
            AND coalesce(last_write_at, created_at) = v_lane.idle_at
            FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        PERFORM 1 FROM queen_cursor
          WHERE partition_id = v_lane.id
          ORDER BY consumer_group
            FOR UPDATE SKIP LOCKED;
        GET DIAGNOSTICS v_had = ROW_COUNT;
        CONTINUE WHEN v_had < (SELECT count(*) FROM queen_cursor WHERE partition_id = v_lane.id)
                   OR EXISTS (
            SELECT FROM queen_cursor
             WHERE partition_id = v_lane.id AND lease_expires_at > clock_timestamp())
                   OR EXISTS (SELECT FROM queen_dead_letter WHERE partition_id = v_lane.id)
                   OR EXISTS (SELECT FROM queen_stream_state WHERE partition_id = v_lane.id);

        INSERT INTO queen_reclaim (partition_id) VALUES (v_lane.id);
        DELETE FROM queen_partition WHERE id = v_lane.id;
        INSERT INTO queen_retention_history AS kept (bucket, queue_id, tenant_id,
                                                     partitions_deleted)
        SELECT date_trunc('minute', v_now), queue.id, queue.tenant_id, 1
          FROM queen_queue queue
         WHERE queue.id = v_lane.queue_id
        ON CONFLICT (bucket, queue_id) DO UPDATE
           SET partitions_deleted = kept.partitions_deleted + 1;
        removed := removed + 1;
    END LOOP;
    IF v_looked < p_rows_max THEN
        reached_at := NULL;
        reached_id := NULL;
    END IF;
    RETURN NEXT;
END;
$$;
