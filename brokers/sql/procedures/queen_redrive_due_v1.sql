-- queen_redrive_due_v1: which redrives are running, and when each may move letters again.
--
-- Called by  brokers/store/redrive_calls.py, redrive_due()
-- Reads      queen_redrive
-- Locks      nothing
-- Cost       one probe while none is running; at most p_limit rows.
-- Answers    the job that may go first first; how many microseconds it has to wait, 0 for none.

CREATE OR REPLACE FUNCTION queen_redrive_due_v1(p_limit integer)
RETURNS TABLE (redrive_id uuid, wait_us bigint)
LANGUAGE sql
STABLE
SET enable_seqscan = off
AS $$
    SELECT redrive.id,
           greatest(extract(epoch FROM redrive.next_at - clock_timestamp()) * 1000000, 0)::bigint
      FROM queen_redrive redrive
     WHERE redrive.state = 'running'
     ORDER BY redrive.next_at
     LIMIT p_limit
$$;
