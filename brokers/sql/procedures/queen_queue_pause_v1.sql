-- queen_queue_pause_v1: let nothing be popped from a queue, or let it be popped again.
--
-- Called by  brokers/store/queue_calls.py, queue_pause()
-- Reads      queen_queue
-- Writes     queen_queue (paused, config_version)
-- Locks      the queue row (no key update), as a configuration does.
-- Cost       one index probe.
-- Answers    the id of the queue and whether it changed; no row when there is no such queue.
--
-- queen_message_claim_v1 reads the column at each claim, so that no broker's cache has a say.
-- The version moves: parked pops of every broker look again when their floor sees it.

CREATE OR REPLACE FUNCTION queen_queue_pause_v1(p_tenant_id uuid, p_name text, p_paused boolean)
RETURNS TABLE (queue_id bigint, changed boolean)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_queue record;
BEGIN
    SELECT queue.id, queue.paused INTO v_queue
      FROM queen_queue queue
     WHERE queue.tenant_id = p_tenant_id AND queue.name = p_name
       FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF v_queue.paused <> p_paused THEN
        UPDATE queen_queue
           SET paused = p_paused, config_version = config_version + 1
         WHERE id = v_queue.id;
    END IF;
    RETURN QUERY SELECT v_queue.id, v_queue.paused <> p_paused;
END;
$$;
