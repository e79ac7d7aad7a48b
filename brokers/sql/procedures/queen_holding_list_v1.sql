-- queen_holding_list_v1: what a tenant had of each kind when it was last counted.
--
-- Called by  brokers/store/quota_calls.py, holdings()
-- Reads      queen_holding
-- Locks      nothing
-- Cost       one index probe
-- Answers    a row a kind (`kv`, `timers`); none for what the tenant has not, or had not yet when
--            it was last counted

CREATE OR REPLACE FUNCTION queen_holding_list_v1(p_tenant_id uuid)
RETURNS TABLE (kind text, rows bigint, bytes bigint)
LANGUAGE sql
STABLE
SET enable_seqscan = off
AS $$
    SELECT held.kind, held.rows, held.bytes
      FROM queen_holding held
     WHERE held.tenant_id = p_tenant_id
$$;
