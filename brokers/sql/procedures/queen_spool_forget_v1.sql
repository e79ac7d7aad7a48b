-- queen_spool_forget_v1: drop the marks of spool files that are gone.
--
-- Called by  brokers/store/spool_calls.py, forget()
-- Writes     queen_spool
-- Locks      the marks' rows, in file order.
-- Cost       one index probe a file.
-- Answers    how many marks there were.
--
-- Only for files that are unlinked for good: their names are never used again, so a mark
-- that a late try leaves behind is an orphan and harms nobody.

CREATE OR REPLACE FUNCTION queen_spool_forget_v1(p_spool_id uuid, p_files text[])
RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    v_count bigint;
BEGIN
    PERFORM 1
       FROM queen_spool
      WHERE spool_id = p_spool_id AND file = ANY (p_files)
      ORDER BY file
        FOR UPDATE;
    DELETE FROM queen_spool WHERE spool_id = p_spool_id AND file = ANY (p_files);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END;
$$;
