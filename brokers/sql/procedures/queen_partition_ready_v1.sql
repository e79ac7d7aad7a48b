-- queen_partition_ready_v1: which partitions of these queues have work for a group now.
--
-- Called by  brokers/store/calls.py, partition_ready()
-- Reads      queen_queue, queen_partition, queen_cursor, queen_segment
-- Locks      nothing
-- Cost       walks every partition of the queues: the ready ring calls it only when it
--            knows nothing, and for its floors.
-- Answers    partitions with visible, unleased work, the longest unread first, at most
--            p_limit; then one row with a null partition: how many of the queues exist, and
--            when the next one that is only leased or deferred may become ready.
--
-- A group without a cursor in a partition counts from its first retained message.

CREATE OR REPLACE FUNCTION queen_partition_ready_v1(
    p_queue_ids    bigint[],
    p_group        text,
    p_partition_id bigint,
    p_window_batch integer,
    p_limit        integer
)
RETURNS TABLE (partition_id bigint, queue_id bigint, pending bigint, due_at timestamptz)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    WITH lane AS (
        SELECT lane.id, lane.queue_id, lane.last_offset, queue.delayed_processing,
               queue.window_buffer, place.leased_at,
               greatest(place.lease_expires_at, place.retry_at) AS lease_expires_at,
               greatest(coalesce(place.committed, -1), lane.log_start - 1) AS floor
          FROM queen_queue queue
          JOIN queen_partition lane ON lane.queue_id = queue.id
          LEFT JOIN LATERAL (
            SELECT held.committed, held.leased_at, held.lease_expires_at, held.retry_at
              FROM queen_cursor held
             WHERE held.partition_id = lane.id AND held.consumer_group = p_group
             LIMIT 1
         ) AS place ON true
         WHERE queue.id = ANY (p_queue_ids) AND NOT queue.paused
           AND (p_partition_id IS NULL OR lane.id = p_partition_id)
           AND lane.last_offset > greatest(coalesce(place.committed, -1), lane.log_start - 1)
    ), judged AS (
        SELECT lane.*,
               lane.lease_expires_at > v_now AS leased,
               CASE WHEN lane.lease_expires_at > v_now THEN lane.floor
                    WHEN lane.delayed_processing = 0 AND lane.window_buffer = 0
                    THEN lane.last_offset
                    ELSE queen_visible_end_v1(lane.id, lane.floor, lane.last_offset, v_now,
                                              lane.delayed_processing, lane.window_buffer,
                                              p_window_batch, p_window_batch, false)
               END AS visible_end
          FROM lane
    ), ready AS (
        SELECT judged.id, judged.queue_id, judged.visible_end - judged.floor AS pending
          FROM judged
         WHERE judged.visible_end > judged.floor
         ORDER BY judged.leased_at NULLS FIRST, judged.id
         LIMIT p_limit
    )
    SELECT ready.id, ready.queue_id, ready.pending, NULL::timestamptz
      FROM ready
    UNION ALL
    SELECT NULL, NULL,
           (SELECT count(*) FROM queen_queue queue WHERE queue.id = ANY (p_queue_ids)),
           min(CASE WHEN judged.leased THEN judged.lease_expires_at
                    ELSE queen_created_at_v1(judged.id, judged.floor + 1)
                         + make_interval(secs => greatest(judged.delayed_processing,
                                                          judged.window_buffer))
               END)
      FROM judged
     WHERE judged.visible_end <= judged.floor;
END;
$$;
