-- queen_dashboard_groups_v1: the groups that lag most, of all tenants.
--
-- Called by  brokers/store/dashboard_calls.py, groups()
-- Reads      queen_queue, queen_group, queen_group_statistics
-- Locks      nothing
-- Cost       two probes a group at a queue.
-- Answers    p_limit rows, a group at a queue each, as last counted: the greatest lag first.
--              age_s     of that count
--              oldest_s  age of the oldest message that it has not consumed, null: it has all

CREATE OR REPLACE FUNCTION queen_dashboard_groups_v1(p_limit integer)
RETURNS TABLE (
    tenant_id uuid, queue_name text, consumer_group text, lag bigint, partitions_lagging bigint,
    oldest_s double precision, age_s double precision
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    SELECT queue.tenant_id, queue.name, registered.consumer_group, known.lag,
           known.partitions_lagging,
           extract(epoch FROM v_now - known.oldest_at)::double precision,
           extract(epoch FROM v_now - known.computed_at)::double precision
      FROM queen_group_statistics known
      JOIN queen_group registered
        ON registered.queue_id = known.queue_id
       AND registered.consumer_group = known.consumer_group
       AND known.computed_at >= registered.created_at
      JOIN queen_queue queue ON queue.id = known.queue_id
     ORDER BY known.lag DESC, known.oldest_at, queue.name, registered.consumer_group
     LIMIT p_limit;
END;
$$;
