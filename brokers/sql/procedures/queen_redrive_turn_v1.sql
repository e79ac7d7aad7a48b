-- queen_redrive_turn_v1: cancel a redrive, or let it run again.
--
-- Called by  brokers/store/redrive_calls.py, redrive_turn()
-- Reads      queen_redrive
-- Writes     queen_redrive
-- Locks      the job's row. A step that is under way is waited for: when a cancel has answered,
--            no further letter moves.
-- Cost       one probe; for one that is to run again the running jobs of the tenant are counted.
-- Answers    the state it was in, or null when it is unknown; `full` when it stays as it was because
--            p_running_max jobs of the tenant are running.
--
-- p_state is `cancelled` or `running`. A job that is done stays done. One that runs again looks
-- at all its letters anew: those that moved are gone, and what was skipped may be movable now.

CREATE OR REPLACE FUNCTION queen_redrive_turn_v1(
    p_tenant_id   uuid,
    p_id          uuid,
    p_state       text,
    p_running_max integer
)
RETURNS text
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    v_was text;
BEGIN
    SELECT state INTO v_was
      FROM queen_redrive
     WHERE id = p_id AND tenant_id = p_tenant_id
       FOR UPDATE;
    IF p_state = 'cancelled' AND v_was IN ('running', 'failed') THEN
        UPDATE queen_redrive
           SET state = 'cancelled', updated_at = clock_timestamp(),
               finished_at = clock_timestamp()
         WHERE id = p_id;
    ELSIF p_state = 'running' AND v_was IN ('cancelled', 'failed') THEN
        IF (SELECT count(*)
              FROM queen_redrive
             WHERE tenant_id = p_tenant_id AND state = 'running') >= p_running_max THEN
            RETURN 'full';
        END IF;
        UPDATE queen_redrive
           SET state = 'running', reached_at = NULL, reached_id = NULL, looked_at = 0,
               skipped = 0, problem = NULL, next_at = clock_timestamp(),
               updated_at = clock_timestamp(), finished_at = NULL
         WHERE id = p_id;
    END IF;
    RETURN v_was;
END;
$$;
