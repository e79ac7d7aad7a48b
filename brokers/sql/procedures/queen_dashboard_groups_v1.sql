-- queen_dashboard_groups_v1: the groups that lag most, of all tenants or of one queue.
--
-- Called by  brokers/store/dashboard_calls.py, groups()
-- Reads      queen_queue, queen_group, queen_group_statistics
-- Locks      nothing
-- Cost       two probes a group at a queue; of one queue, those of its groups.
-- Answers    p_limit rows, a group at a queue each, as last counted: the greatest lag first, those
--            that were not counted yet last, with nulls. p_queue null: of all queues.
--              age_s     of that count
--              oldest_s  age of the oldest message that it has not consumed, null: it has all

CREATE OR REPLACE FUNCTION queen_dashboard_groups_v1(
    p_tenant_id uuid,
    p_queue     text,
    p_limit     integer
)
RETURNS TABLE (
    tenant_id uuid, queue_name text, consumer_group text, lag bigint, partitions_lagging bigint,
    cursors bigint, oldest_s double precision, age_s double precision, mode text,
    conflation boolean
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    SELECT queue.tenant_id, queue.name, registered.consumer_group, known.lag,
           known.partitions_lagging, known.cursors,
           extract(epoch FROM v_now - known.oldest_at)::double precision,
           extract(epoch FROM v_now - known.computed_at)::double precision,
           registered.subscription_mode, registered.conflation
      FROM queen_queue queue
      JOIN queen_group registered ON registered.queue_id = queue.id
      LEFT JOIN queen_group_statistics known
        ON known.queue_id = registered.queue_id
       AND known.consumer_group = registered.consumer_group
       AND known.computed_at >= registered.created_at
     WHERE p_queue IS NULL OR (queue.tenant_id = p_tenant_id AND queue.name = p_queue)
     ORDER BY known.lag DESC NULLS LAST, known.oldest_at, queue.name, registered.consumer_group
     LIMIT p_limit;
END;
$$;
