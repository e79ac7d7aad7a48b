-- queen_group_list_v1: the groups of a tenant at each of their queues, as they were last counted.
--
-- Called by  brokers/store/group_calls.py, group_list()
-- Reads      queen_queue, queen_group, queen_group_statistics; for a group that was not counted yet
--            what queen_group_figures_v1 reads
-- Locks      nothing
-- Cost       two probes a group and queue; for one that was not counted yet a pass over the
--            queue's partitions.
-- Answers    p_limit rows from p_offset, by group and queue.

CREATE OR REPLACE FUNCTION queen_group_list_v1(
    p_tenant_id uuid,
    p_limit     integer,
    p_offset    bigint
)
RETURNS TABLE (
    consumer_group text, queue_name text, cursors bigint, lagging bigint, lag bigint,
    consumed boolean, oldest_s bigint, subscription_mode text,
    subscription_timestamp timestamptz, created_at timestamptz, conflation boolean
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
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    SELECT page.consumer_group, page.name, sums.cursors, sums.lagging, sums.lag, sums.consumed,
           coalesce(greatest(extract(epoch FROM v_now - sums.oldest_at), 0)::bigint, 0),
           page.subscription_mode, page.subscription_timestamp, page.created_at,
           page.conflation
      FROM (
        SELECT registered.*, queue.name
          FROM queen_queue queue
          JOIN queen_group registered ON registered.queue_id = queue.id
         WHERE queue.tenant_id = p_tenant_id
         ORDER BY registered.consumer_group, queue.name
         LIMIT p_limit OFFSET p_offset
      ) AS page
      LEFT JOIN queen_group_statistics known
             ON known.queue_id = page.queue_id
            AND known.consumer_group = page.consumer_group
            AND known.computed_at >= page.created_at
     CROSS JOIN LATERAL (
        SELECT known.cursors, known.partitions_lagging AS lagging, known.lag, known.consumed,
               known.oldest_at
         WHERE known.queue_id IS NOT NULL
        UNION ALL
        SELECT fresh.cursors, fresh.lagging, fresh.lag, fresh.consumed, fresh.oldest_at
          FROM queen_group_figures_v1(page.queue_id, page.consumer_group) AS fresh
         WHERE known.queue_id IS NULL
     ) AS sums
     ORDER BY page.consumer_group, page.name;
END;
$$;
