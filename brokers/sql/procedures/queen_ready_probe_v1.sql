-- queen_ready_probe_v1: what rings should know: which partitions have work for their groups.
--
-- Called by  brokers/store/calls.py, ready_probe(): the first look of a pop whose ring knew
--            nothing, the one-second floor for every gate that has seats, and the reseeds
-- Reads      queen_queue, queen_group, queen_partition, queen_cursor, queen_segment, queen_wake
-- Locks      nothing
-- Cost       with a since: the partitions written after it (an index range). Without: every
--            partition of the queue. Bounded by p_limit rows a ring.
-- Answers    per ring first one row with a null partition: the wake version (null: the queue
--            is gone); then a row per partition with unread messages: due_us 0 is ready, else
--            when its lease or deferral ends, in microseconds from now, and whether that is
--            a lease. truncated says that the limit cut a ring's rows. A paused queue has no
--            work; to pause and to resume it moves its version.
--
-- Compared are offsets, never times; p_since only chooses which partitions to compare, and
-- the caller makes it early enough for stamps that move once a second and commit late.

CREATE OR REPLACE FUNCTION queen_ready_probe_v1(
    p_queue_ids    bigint[],
    p_groups       text[],
    p_since        timestamptz[],
    p_window_batch integer,
    p_limit        integer
)
RETURNS TABLE (
    ring_no integer, partition_id bigint, due_us bigint, leased boolean,
    wake_version bigint, looked_at timestamptz, truncated boolean
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
    v_now   timestamptz := clock_timestamp();
    v_no    integer;
    v_count integer;
BEGIN
    FOR v_no IN 1 .. cardinality(p_queue_ids) LOOP
        ring_no := v_no;
        partition_id := NULL;
        due_us := NULL;
        leased := NULL;
        looked_at := v_now;
        truncated := false;
        -- A configuration moves it too: what is deferred may be due now.
        SELECT coalesce(wake.version, 0) + queue.config_version
          INTO wake_version
          FROM queen_queue queue
          LEFT JOIN queen_wake wake
                 ON wake.queue_id = queue.id AND wake.consumer_group = p_groups[v_no]
         WHERE queue.id = p_queue_ids[v_no];
        RETURN NEXT;
        CONTINUE WHEN wake_version IS NULL;

        IF p_since[v_no] IS NULL THEN
            RETURN QUERY
            SELECT v_no, judged.id, judged.due_us, judged.leased, NULL::bigint, v_now, false
              FROM (
                SELECT lane.id, place.leased_at, due.due_us,
                       coalesce(place.lease_expires_at > v_now, false) AS leased
                  FROM queen_queue queue
                  JOIN queen_partition lane ON lane.queue_id = queue.id
                  LEFT JOIN LATERAL (
                    SELECT held.committed, held.lease_expires_at, held.retry_at, held.leased_at
                      FROM queen_cursor held
                     WHERE held.partition_id = lane.id AND held.consumer_group = p_groups[v_no]
                     LIMIT 1
                 ) AS place ON true
                 CROSS JOIN LATERAL queen_ready_due_v1(
                         lane.id, lane.last_offset, lane.log_start, place.committed,
                         greatest(place.lease_expires_at, place.retry_at),
                         queue.delayed_processing, queue.window_buffer,
                         p_window_batch, v_now) AS due(due_us)
                 WHERE queue.id = p_queue_ids[v_no] AND NOT queue.paused
                   AND lane.last_offset > greatest(coalesce(place.committed, -1),
                                                   lane.log_start - 1)
              ) AS judged
             ORDER BY judged.due_us > 0, judged.leased_at NULLS FIRST, judged.id
             LIMIT p_limit;
        ELSE
            RETURN QUERY
            SELECT v_no, lane.id, due.due_us, coalesce(place.lease_expires_at > v_now, false),
                   NULL::bigint, v_now, false
              FROM queen_queue queue
              JOIN queen_partition lane
                ON lane.queue_id = queue.id AND lane.last_write_at >= p_since[v_no]
              LEFT JOIN LATERAL (
                SELECT held.committed, held.lease_expires_at, held.retry_at
                  FROM queen_cursor held
                 WHERE held.partition_id = lane.id AND held.consumer_group = p_groups[v_no]
                 LIMIT 1
             ) AS place ON true
             CROSS JOIN LATERAL queen_ready_due_v1(
                     lane.id, lane.last_offset, lane.log_start, place.committed,
                     greatest(place.lease_expires_at, place.retry_at),
                     queue.delayed_processing, queue.window_buffer,
                     p_window_batch, v_now) AS due(due_us)
             WHERE queue.id = p_queue_ids[v_no] AND NOT queue.paused
               AND lane.last_offset > greatest(coalesce(place.committed, -1), lane.log_start - 1)
             LIMIT p_limit;
        END IF;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        IF v_count >= p_limit THEN
            partition_id := NULL;
            truncated := true;
            RETURN NEXT;
        END IF;
    END LOOP;
END;
$$;
