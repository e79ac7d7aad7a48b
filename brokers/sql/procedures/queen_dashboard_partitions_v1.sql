-- queen_dashboard_partitions_v1: a page of the partitions of one queue, by name.
--
-- Called by  brokers/store/dashboard_calls.py, partitions()
-- Reads      queen_queue, queen_partition, queen_group, queen_cursor
-- Locks      nothing
-- Cost       the partitions of the page, with a cursor probe for each and group.
-- Answers    p_limit rows behind p_after (null: from the first), as they are now.
--              pending     what the slowest group has not consumed
--              processing  what lies in live leases, at most that

CREATE OR REPLACE FUNCTION queen_dashboard_partitions_v1(
    p_tenant_id uuid,
    p_queue     text,
    p_after     text,
    p_limit     integer
)
RETURNS TABLE (
    name text, uid uuid, last_offset bigint, log_start bigint, pending bigint, processing bigint,
    last_write_at timestamptz, created_at timestamptz
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    SELECT lane.name, lane.uid, lane.last_offset, lane.log_start, reach.pending,
           least(reach.processing, reach.pending), lane.last_write_at, lane.created_at
      FROM (
        SELECT paged.*
          FROM queen_queue queue
          JOIN queen_partition paged ON paged.queue_id = queue.id
         WHERE queue.tenant_id = p_tenant_id AND queue.name = p_queue
           AND (p_after IS NULL OR paged.name > p_after)
         ORDER BY paged.name
         LIMIT p_limit
      ) AS lane
     CROSS JOIN LATERAL (
        SELECT greatest(lane.last_offset
                        - greatest(min(coalesce(place.committed, -1)), lane.log_start - 1),
                        0) AS pending,
               coalesce(max(greatest(
                   place.batch_end - greatest(place.committed, lane.log_start - 1), 0))
                   FILTER (WHERE place.lease_expires_at > v_now), 0) AS processing
          FROM queen_group registered
          LEFT JOIN queen_cursor place
                 ON place.partition_id = lane.id
                AND place.consumer_group = registered.consumer_group
         WHERE registered.queue_id = lane.queue_id
     ) AS reach
     ORDER BY lane.name;
END;
$$;
