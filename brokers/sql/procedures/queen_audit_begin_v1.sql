-- queen_audit_begin_v1: somebody is about to do something.
--
-- Called by  brokers/store/audit_calls.py, audit_begin()
-- Writes     queen_audit
-- Locks      nothing that others wait for
-- Cost       one row
-- Answers    the entry's id, by which audit_end completes it

CREATE OR REPLACE FUNCTION queen_audit_begin_v1(
    p_user_id bigint, p_user_name text, p_peer text, p_action text, p_tenant_id uuid,
    p_target text, p_detail text
)
RETURNS bigint
LANGUAGE sql
AS $$
    INSERT INTO queen_audit (user_id, user_name, peer, action, tenant_id, target, detail)
    VALUES (p_user_id, p_user_name, p_peer, p_action, p_tenant_id, p_target, p_detail)
    RETURNING id
$$;
