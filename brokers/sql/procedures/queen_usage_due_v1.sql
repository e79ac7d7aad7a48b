-- queen_usage_due_v1: which usages have not been counted for a while.
--
-- Called by  brokers/store/quota_calls.py, usage_due()
-- Reads      queen_usage
-- Cost       the metered tenants
-- Answers    up to p_limit of them, the longest uncounted first

CREATE OR REPLACE FUNCTION queen_usage_due_v1(p_every_ms bigint, p_limit integer)
RETURNS TABLE (tenant_id uuid, kind text)
LANGUAGE sql
STABLE
AS $$
    SELECT usage.tenant_id, usage.kind
      FROM queen_usage usage
     WHERE usage.counted_at < clock_timestamp() - p_every_ms * interval '1 millisecond'
     ORDER BY usage.counted_at
     LIMIT p_limit
$$;
