-- queen_lease_done_v1: give a task back after a cycle, and say when it is due again.
--
-- Called by  brokers/store/leader_calls.py, lease_done()
-- Reads      queen_lease
-- Writes     queen_lease
-- Locks      the task's advisory lock, shared, without waiting; then its row.
-- Cost       one probe.
-- Answers    whether the token was still that of the leader; nothing is written otherwise.
--
-- Due again one interval after it was last due, or at once when that is past already.

CREATE OR REPLACE FUNCTION queen_lease_done_v1(
    p_task        text,
    p_token       bigint,
    p_interval_ms bigint
)
RETURNS boolean
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
BEGIN
    IF NOT queen_lease_held_v1(p_task, p_token) THEN
        RETURN false;
    END IF;
    UPDATE queen_lease
       SET held_until = NULL,
           next_due_at = greatest(
               least(next_due_at, clock_timestamp())
               + make_interval(secs => p_interval_ms / 1000.0),
               clock_timestamp())
     WHERE task = p_task AND fencing_token = p_token;
    RETURN FOUND;
END;
$$;
