-- queen_holding_find_v1: which tenants have key/value entries or timers at all.
--
-- Called by  brokers/store/quota_calls.py, holding_find(), by whoever leads the usage task
-- Reads      queen_kv or queen_timer
-- Writes     queen_holding: a row for each tenant that has none of this kind yet
-- Locks      the rows that it adds
-- Cost       an index probe a tenant, at most p_limit of them
-- Answers    the last tenant that was found, to go on from; null when there are no more. From null
--            on it begins with the first.

CREATE OR REPLACE FUNCTION queen_holding_find_v1(p_kind text, p_after uuid, p_limit integer)
RETURNS uuid
LANGUAGE plpgsql
-- Planned anew each time, as the first probe has no bound and the others have one.
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
AS $$
DECLARE
    v_tenant uuid := p_after;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    FOR v_no IN 1 .. p_limit LOOP
        IF p_kind = 'kv' THEN
            v_tenant := (SELECT entry.tenant_id FROM queen_kv entry
                          WHERE v_tenant IS NULL OR entry.tenant_id > v_tenant
                          ORDER BY entry.tenant_id LIMIT 1);
        ELSE
            v_tenant := (SELECT timer.tenant_id FROM queen_timer timer
                          WHERE v_tenant IS NULL OR timer.tenant_id > v_tenant
                          ORDER BY timer.tenant_id LIMIT 1);
        END IF;
        EXIT WHEN v_tenant IS NULL;
        INSERT INTO queen_holding (tenant_id, kind) VALUES (v_tenant, p_kind)
        ON CONFLICT DO NOTHING;
    END LOOP;
    RETURN v_tenant;
END;
$$;
