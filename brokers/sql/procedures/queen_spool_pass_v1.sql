-- queen_spool_pass_v1: move the mark of a spool file past records that are dealt with.
--
-- Called by  brokers/store/spool_calls.py, pass_over(); queen_spool_replay_v1, as its last step
-- Reads      queen_spool
-- Writes     queen_spool
-- Locks      the mark's row, last of all that a transaction locks, waiting at most p_wait_ms.
-- Cost       one index probe and a HOT update; an insert for the first records of a file.
-- Answers    nothing
-- Raises     QN020 the mark is not at p_from: somebody else has moved it, read it again
--            55P03 when the mark's row is not had in time
--
-- No row is a mark at 0. Of two that move a mark from the same place one waits for the other
-- and then fails, the first time of a file too: an insert waits for an uncommitted equal.
-- Without p_oldest_us the oldest acceptance stays as it was told last.

CREATE OR REPLACE FUNCTION queen_spool_pass_v1(
    p_spool_id  uuid,
    p_file      text,
    p_from      bigint,
    p_count     bigint,
    p_server_id text,
    p_oldest_us bigint,
    p_wait_ms   integer
)
RETURNS void
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
    v_oldest_at timestamptz := to_timestamp(p_oldest_us / 1000000.0);
    v_moved     boolean;
BEGIN
    PERFORM set_config('lock_timeout', greatest(p_wait_ms, 1)::text, true);
    UPDATE queen_spool
       SET done = p_from + p_count,
           server_id = p_server_id,
           oldest_accepted_at = coalesce(v_oldest_at, oldest_accepted_at),
           updated_at = clock_timestamp()
     WHERE spool_id = p_spool_id AND file = p_file AND done = p_from;
    v_moved := FOUND;
    IF NOT v_moved AND p_from = 0 THEN
        INSERT INTO queen_spool (spool_id, file, done, server_id, oldest_accepted_at, updated_at)
        VALUES (p_spool_id, p_file, p_count, p_server_id, v_oldest_at, clock_timestamp())
        ON CONFLICT DO NOTHING;
        v_moved := FOUND;
    END IF;
    IF NOT v_moved THEN
        RAISE EXCEPTION 'the mark of spool file % is not at %', p_file, p_from
            USING ERRCODE = 'QN020';
    END IF;
END;
$$;
