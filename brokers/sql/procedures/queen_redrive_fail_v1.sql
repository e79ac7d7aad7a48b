-- queen_redrive_fail_v1: end a redrive that cannot go on, and say why.
--
-- Called by  brokers/store/redrive_calls.py, redrive_fail()
-- Reads      queen_lease, queen_redrive
-- Writes     queen_redrive
-- Locks      what queen_lease_held_v1 holds, then the job's row.
-- Cost       one probe.
-- Answers    false when somebody else leads: nothing was written.

CREATE OR REPLACE FUNCTION queen_redrive_fail_v1(p_token bigint, p_id uuid, p_problem text)
RETURNS boolean
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
BEGIN
    IF NOT queen_lease_held_v1('redrive', p_token) THEN
        RETURN false;
    END IF;
    UPDATE queen_redrive
       SET state = 'failed', problem = p_problem, updated_at = clock_timestamp(),
           finished_at = clock_timestamp()
     WHERE id = p_id AND state = 'running';
    RETURN true;
END;
$$;
