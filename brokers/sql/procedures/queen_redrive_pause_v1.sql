-- queen_redrive_pause_v1: let a redrive wait before it looks at its letters again.
--
-- Called by  brokers/store/redrive_calls.py, redrive_pause()
-- Reads      queen_lease, queen_redrive
-- Writes     queen_redrive
-- Locks      what queen_lease_held_v1 holds, then the job's row.
-- Cost       one probe.
-- Answers    false when somebody else leads: nothing was written.

CREATE OR REPLACE FUNCTION queen_redrive_pause_v1(p_token bigint, p_id uuid, p_wait_ms integer)
RETURNS boolean
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
BEGIN
    IF NOT queen_lease_held_v1('redrive', p_token) THEN
        RETURN false;
    END IF;
    UPDATE queen_redrive
       SET next_at = greatest(next_at,
                              clock_timestamp() + make_interval(secs => p_wait_ms / 1000.0))
     WHERE id = p_id AND state = 'running';
    RETURN true;
END;
$$;
