-- queen_quota_list_v1: the quota rows of some tenants, and how much each retains.
--
-- Called by  brokers/store/quota_calls.py, quota_list(); by a broker for the tenants it serves,
--            and by services/stream_grants.py at a registration
-- Reads      queen_quota, queen_queue, queen_queue_statistics
-- Cost       one index probe a tenant, and one a queue of those with a bound on what is retained
-- Answers    one row a tenant that has a quota; retained bytes as last measured

CREATE OR REPLACE FUNCTION queen_quota_list_v1(p_tenants uuid[])
RETURNS TABLE (
    tenant_id uuid, enabled boolean, max_horizon_s bigint, max_retained_bytes bigint,
    push_rate bigint, retained_bytes bigint, streams_enabled boolean, max_queries bigint
)
LANGUAGE sql
STABLE
AS $$
    SELECT quota.tenant_id, quota.enabled, quota.max_horizon_s, quota.max_retained_bytes,
           quota.push_rate,
           CASE WHEN quota.max_retained_bytes IS NOT NULL THEN coalesce((
               SELECT sum(figures.bytes)::bigint
                 FROM queen_queue queue
                 JOIN queen_queue_statistics figures ON figures.queue_id = queue.id
                WHERE queue.tenant_id = quota.tenant_id), 0) END,
           quota.streams_enabled, quota.max_queries
      FROM queen_quota quota
     WHERE quota.tenant_id = ANY (p_tenants)
$$;
