-- queen_queue_ensure_v1: one queue with what a pop needs to know of it, created if missing.
--
-- Called by  brokers/store/calls.py, queue_ensure()
-- Reads      queen_queue
-- Writes     queen_queue, when missing.
-- Locks      nothing when it exists.
-- Answers    one row.
-- Raises     QN033 when it is missing and the tenant may have no more queues

CREATE OR REPLACE FUNCTION queen_queue_ensure_v1(p_tenant_id uuid, p_name text)
RETURNS SETOF queen_queue
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    -- A delete may come between the creation and the look at it: then once more.
    FOR attempt IN 1 .. 10 LOOP
        RETURN QUERY SELECT * FROM queen_queue WHERE tenant_id = p_tenant_id AND name = p_name;
        EXIT WHEN FOUND;
        PERFORM queen_queue_create_v1(p_tenant_id, ARRAY[p_name], true);
    END LOOP;
END;
$$;
