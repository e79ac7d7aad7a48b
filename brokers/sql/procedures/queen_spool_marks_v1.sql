-- queen_spool_marks_v1: how far each file of a spool was replayed.
--
-- Called by  brokers/store/spool_calls.py, marks()
-- Reads      queen_spool
-- Locks      nothing
-- Cost       one index range; a row a file that is not finished.
-- Answers    file and the number of its records that are dealt with; no row is 0.

CREATE OR REPLACE FUNCTION queen_spool_marks_v1(p_spool_id uuid)
RETURNS TABLE (file text, done bigint)
LANGUAGE sql
STABLE
SET enable_seqscan = off
AS $$
    SELECT mark.file, mark.done
      FROM queen_spool mark
     WHERE mark.spool_id = p_spool_id
     ORDER BY mark.file
$$;
