-- queen_lease_take_v1: become the leader of a task for its next cycle, if it is due and free.
--
-- Called by  brokers/store/leader_calls.py, lease_take()
-- Reads      queen_lease
-- Writes     queen_lease
-- Locks      the task's advisory lock for this transaction, alone and without waiting; then its
--            row.
-- Cost       one probe while the task is not due.
-- Answers    one row: the fencing token of the new holder, or null and how many microseconds
--            from now it is worth asking again.
--
-- Every step of a leader holds the advisory lock shared (queen_lease_held_v1). So a holder
-- that is late with a step keeps everybody out until that step is over, and afterwards its
-- token is the old one: two leaders are never at work at once, whatever their clocks say.
-- A due time further ahead than the asker's interval was written under a longer one: it counts as due.

CREATE OR REPLACE FUNCTION queen_lease_take_v1(
    p_task        text,
    p_holder      text,
    p_lease_ms    bigint,
    p_interval_ms bigint
)
RETURNS TABLE (token bigint, wait_us bigint)
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_interval interval := make_interval(secs => p_interval_ms / 1000.0);
    v_lease    queen_lease;
    v_now      timestamptz := clock_timestamp();
    v_token    bigint;
    v_wait     interval;
BEGIN
    SELECT * INTO v_lease FROM queen_lease WHERE task = p_task;
    IF NOT FOUND THEN
        INSERT INTO queen_lease (task, next_due_at) VALUES (p_task, v_now)
        ON CONFLICT DO NOTHING;
        SELECT * INTO v_lease FROM queen_lease WHERE task = p_task;
    END IF;

    IF NOT v_lease.enabled THEN
        v_wait := v_interval;
    ELSIF v_lease.held_until > v_now THEN
        v_wait := least(v_lease.held_until - v_now, v_interval);
    ELSIF v_lease.next_due_at > v_now
      AND v_lease.next_due_at <= v_now + v_interval + interval '1 second' THEN
        v_wait := v_lease.next_due_at - v_now;
    ELSIF pg_try_advisory_xact_lock(hashtextextended('queen_lease ' || p_task, 0)) THEN
        -- Somebody may have come between our look and our lock.
        UPDATE queen_lease
           SET holder = p_holder,
               held_until = clock_timestamp() + make_interval(secs => p_lease_ms / 1000.0),
               fencing_token = fencing_token + 1
         WHERE task = p_task AND enabled AND fencing_token = v_lease.fencing_token
        RETURNING fencing_token INTO v_token;
    END IF;

    RETURN QUERY
    SELECT v_token,
           CASE WHEN v_token IS NULL
                THEN coalesce(extract(epoch FROM v_wait) * 1000000, 50000)::bigint END;
END;
$$;
