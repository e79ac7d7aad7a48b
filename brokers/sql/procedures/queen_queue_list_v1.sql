-- queen_queue_list_v1: every queue of a tenant with its live figures.
--
-- Called by  brokers/store/management_calls.py, queue_list()
-- Reads      queen_queue, queen_group, queen_partition, queen_cursor, queen_segment
-- Locks      nothing
-- Cost       one pass over the tenant's partitions, a cursor probe for each and group, and
--            at most p_segments_max segments a queue.
-- Answers    one row a queue, by name. Figures as in queen_partition_figures_v1; segments
--            and bytes are estimates for queues with more segments than that.

CREATE OR REPLACE FUNCTION queen_queue_list_v1(p_tenant_id uuid, p_segments_max integer)
RETURNS TABLE (
    uid uuid, name text, namespace text, task text, created_at timestamptz,
    partitions bigint, total bigint, pending bigint, processing bigint,
    segments bigint, bytes bigint
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT queue.uid, queue.name, queue.namespace, queue.task, queue.created_at,
           sums.partitions, sums.total, sums.pending, sums.processing,
           stored.segments, stored.bytes
      FROM queen_queue queue
     CROSS JOIN LATERAL (
        SELECT count(*) AS partitions,
               coalesce(sum(lane.total), 0)::bigint AS total,
               coalesce(sum(lane.pending), 0)::bigint AS pending,
               coalesce(sum(lane.processing), 0)::bigint AS processing
          FROM queen_partition_figures_v1(queue.id, NULL) AS lane
     ) AS sums
     CROSS JOIN LATERAL queen_segment_figures_v1(queue.id, sums.total, p_segments_max) AS stored
     WHERE queue.tenant_id = p_tenant_id
     ORDER BY queue.name;
END;
$$;
