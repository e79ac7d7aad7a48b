-- queen_switch_set_v1: change some of the operator's switches, and tell them all.
--
-- Called by  brokers/store/kv_calls.py, switch_set()
-- Writes     queen_system (key `switches`)
-- Locks      that one row
-- Cost       one row
-- Answers    the switches as they stand now; one that was never set is not among them
--
-- An empty patch only reads.

CREATE OR REPLACE FUNCTION queen_switch_set_v1(p_patch jsonb)
RETURNS jsonb
LANGUAGE plpgsql
AS $$
DECLARE
    v_switches jsonb;
BEGIN
    IF p_patch = '{}' THEN
        SELECT value INTO v_switches FROM queen_system WHERE key = 'switches';
        RETURN coalesce(v_switches, '{}');
    END IF;
    INSERT INTO queen_system AS system (key, value) VALUES ('switches', p_patch)
    ON CONFLICT (key) DO UPDATE
       SET value = system.value || excluded.value, updated_at = now()
    RETURNING value INTO v_switches;
    RETURN v_switches;
END;
$$;
