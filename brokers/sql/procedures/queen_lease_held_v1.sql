-- queen_lease_held_v1: whether a token is still that of a task's leader; held so to the end.
--
-- Called by  every step of a leader task, first of all
-- Reads      queen_lease
-- Locks      the task's advisory lock, shared, for the rest of the transaction: while it is
--            held nobody else becomes leader. Without waiting.
-- Cost       one probe.
-- Answers    false when the step must do nothing: somebody else leads, or the lease is over.

CREATE OR REPLACE FUNCTION queen_lease_held_v1(p_task text, p_token bigint)
RETURNS boolean
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock_shared(hashtextextended('queen_lease ' || p_task, 0)) THEN
        RETURN false;
    END IF;
    -- A statement of its own, so that it sees what was committed before the lock was ours.
    PERFORM 1
       FROM queen_lease
      WHERE task = p_task AND fencing_token = p_token AND held_until > clock_timestamp();
    RETURN FOUND;
END;
$$;
