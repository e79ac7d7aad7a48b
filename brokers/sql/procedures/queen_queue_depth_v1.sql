-- queen_queue_depth_v1: how much of a queue waits, for one group or for the slowest.
--
-- Called by  brokers/store/management_calls.py, queue_depth()
-- Reads      queen_queue, queen_group, queen_partition, queen_cursor
-- Locks      nothing
-- Cost       one pass over the queue's partitions, a cursor probe for each and group.
-- Answers    one row, or none when there is no such queue. `partitions` is the JSON array
--            that the answer carries, as text: p_limit of them from p_offset, by name. The
--            sums are over all; `lanes` is how many there are. conflation is the policy of the
--            group that was asked for.

CREATE OR REPLACE FUNCTION queen_queue_depth_v1(
    p_tenant_id uuid,
    p_name      text,
    p_group     text,
    p_limit     integer,
    p_offset    bigint
)
RETURNS TABLE (
    pending bigint, processing bigint, partitions_pending bigint, partitions_ready bigint,
    conflation boolean, lanes bigint, partitions text
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
    SELECT sums.pending, sums.processing, sums.partitions_pending, sums.partitions_ready,
           coalesce((SELECT registered.conflation
                       FROM queen_group registered
                      WHERE registered.queue_id = queue.id
                        AND registered.consumer_group = p_group), false),
           sums.lanes, coalesce(sums.partitions, '[]')
      FROM queen_queue queue
     CROSS JOIN LATERAL (
        SELECT coalesce(sum(lane.pending), 0)::bigint AS pending,
               coalesce(sum(lane.processing), 0)::bigint AS processing,
               count(*) FILTER (WHERE lane.pending > 0) AS partitions_pending,
               count(*) FILTER (WHERE lane.pending > lane.processing) AS partitions_ready,
               count(*) AS lanes,
               '[' || string_agg(
                   json_build_object(
                       'partition', lane.name, 'pending', lane.pending,
                       'processing', lane.processing,
                       'ready', lane.pending - lane.processing
                   )::text, ',' ORDER BY lane.no)
                   FILTER (WHERE lane.no > p_offset AND lane.no <= p_offset + p_limit)
               || ']' AS partitions
          FROM (
            SELECT figures.*, row_number() OVER (ORDER BY figures.name) AS no
              FROM queen_partition_figures_v1(queue.id, p_group) AS figures
          ) AS lane
     ) AS sums
     WHERE queue.tenant_id = p_tenant_id AND queue.name = p_name;
END;
$$;
