-- queen_usage_add_v1: a call of a metered tenant added or removed something: may it?
--
-- Called by  queen_kv_apply_v1, queen_timer_apply_v1, after what they did
-- Reads      queen_quota
-- Writes     queen_usage, queen_usage_delta
-- Locks      who adds: the tenant's usage row, held to the commit. It comes behind the keys of
--            its kind in the one lock order (kv keys, kv usage, timer keys, timer usage,
--            queues). Who only removes: nothing.
-- Cost       a few index probes; the first time it counts what the tenant has
-- Raises     QN031 (kv), QN032 (timers) when the tenant has more than its quota now, and more
--            than before this call
--
-- Under the row's lock the sum is exact: however many brokers and clients race, what would be
-- one too many is not committed. Removing is never refused and never waits.

CREATE OR REPLACE FUNCTION queen_usage_add_v1(
    p_tenant_id uuid, p_kind text, p_rows bigint, p_bytes bigint
)
RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    v_quota queen_quota%ROWTYPE;
    v_rows  bigint;
    v_bytes bigint;
BEGIN
    IF p_rows <= 0 AND p_bytes <= 0 THEN
        INSERT INTO queen_usage_delta (tenant_id, kind, rows, bytes)
        SELECT usage.tenant_id, usage.kind, p_rows, p_bytes
          FROM queen_usage usage
         WHERE usage.tenant_id = p_tenant_id AND usage.kind = p_kind
           AND (p_rows < 0 OR p_bytes < 0);
        RETURN;
    END IF;

    INSERT INTO queen_usage (tenant_id, kind) VALUES (p_tenant_id, p_kind)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        -- What this call did is counted with the rest.
        PERFORM queen_usage_count_v1(p_tenant_id, p_kind);
    ELSE
        PERFORM 1 FROM queen_usage
          WHERE tenant_id = p_tenant_id AND kind = p_kind FOR UPDATE;
        WITH taken AS (
            DELETE FROM queen_usage_delta
             WHERE tenant_id = p_tenant_id AND kind = p_kind
            RETURNING rows, bytes
        )
        UPDATE queen_usage usage
           SET rows = usage.rows + p_rows + coalesce((SELECT sum(taken.rows) FROM taken), 0),
               bytes = usage.bytes + p_bytes + coalesce((SELECT sum(taken.bytes) FROM taken), 0)
         WHERE usage.tenant_id = p_tenant_id AND usage.kind = p_kind;
    END IF;

    SELECT * INTO v_quota FROM queen_quota WHERE tenant_id = p_tenant_id;
    SELECT rows, bytes INTO v_rows, v_bytes
      FROM queen_usage WHERE tenant_id = p_tenant_id AND kind = p_kind;
    IF p_kind = 'timers' AND p_rows > 0 AND v_rows > v_quota.max_timers THEN
        RAISE EXCEPTION 'the tenant may have % timers', v_quota.max_timers
            USING ERRCODE = 'QN032';
    END IF;
    IF p_kind = 'kv' AND p_rows > 0 AND v_rows > v_quota.max_rows THEN
        RAISE EXCEPTION 'the tenant may have % key/value entries', v_quota.max_rows
            USING ERRCODE = 'QN031';
    END IF;
    IF p_kind = 'kv' AND p_bytes > 0 AND v_bytes > v_quota.max_bytes THEN
        RAISE EXCEPTION 'the tenant may have % bytes of key/value state', v_quota.max_bytes
            USING ERRCODE = 'QN031';
    END IF;
END;
$$;
