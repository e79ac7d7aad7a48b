-- queen_quota_list_v1: the quota rows of some tenants, and how much of them is used.
--
-- Called by  brokers/store/quota_calls.py, quota_list(); by a broker for the tenants it serves,
--            and by services/stream_grants.py at a registration
-- Reads      queen_quota, queen_usage, queen_usage_delta, queen_queue, queen_queue_statistics
-- Cost       a few index probes a tenant, and one a queue of those with a bound on what is retained
-- Answers    one row a tenant that has a quota; retained bytes as last measured, at `retained_at` or
--            later. `used_percent` is that of entries, their bytes or timers of which most is used;
--            null without a bound

CREATE OR REPLACE FUNCTION queen_quota_list_v1(p_tenants uuid[])
RETURNS TABLE (
    tenant_id uuid, enabled boolean, max_horizon_s bigint, max_retained_bytes bigint,
    push_rate bigint, retained_bytes bigint, streams_enabled boolean, max_queries bigint,
    used_percent double precision, retained_at timestamptz
)
LANGUAGE sql
STABLE
AS $$
    SELECT quota.tenant_id, quota.enabled, quota.max_horizon_s, quota.max_retained_bytes,
           quota.push_rate,
           CASE WHEN quota.max_retained_bytes IS NOT NULL THEN coalesce(held.bytes, 0) END,
           quota.streams_enabled, quota.max_queries,
           -- Whoever may have nothing has all of it.
           (SELECT max(CASE WHEN share.bound > 0 THEN 100.0 * share.used / share.bound
                            ELSE 100 END)::double precision
              FROM (VALUES (quota.max_rows, 'kv', true), (quota.max_bytes, 'kv', false),
                           (quota.max_timers, 'timers', true)) AS bounded (bound, kind, by_rows)
             CROSS JOIN LATERAL (
                 SELECT bounded.bound,
                        coalesce(sum(CASE WHEN bounded.by_rows THEN counted.rows
                                          ELSE counted.bytes END), 0) AS used
                   FROM (SELECT usage.rows, usage.bytes FROM queen_usage usage
                          WHERE usage.tenant_id = quota.tenant_id AND usage.kind = bounded.kind
                          UNION ALL
                         SELECT delta.rows, delta.bytes FROM queen_usage_delta delta
                          WHERE delta.tenant_id = quota.tenant_id
                            AND delta.kind = bounded.kind) AS counted) AS share
             WHERE bounded.bound IS NOT NULL),
           held.measured_at
      FROM queen_quota quota
      LEFT JOIN LATERAL (
           SELECT sum(figures.bytes)::bigint AS bytes, min(figures.bytes_at) AS measured_at
             FROM queen_queue queue
             JOIN queen_queue_statistics figures ON figures.queue_id = queue.id
            WHERE queue.tenant_id = quota.tenant_id
              AND quota.max_retained_bytes IS NOT NULL) AS held ON true
     WHERE quota.tenant_id = ANY (p_tenants)
$$;
