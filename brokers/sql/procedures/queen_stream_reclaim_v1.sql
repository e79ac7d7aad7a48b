-- queen_stream_reclaim_v1: one bounded step of removing state that was reset.
--
-- Called by  queen_queue_reclaim_v1
-- Reads      queen_stream_reclaim
-- Writes     queen_stream_state, queen_stream_reclaim
-- Locks      reclaim and state rows, skipping what others hold.
-- Cost       about p_rows_max rows.
-- Answers    how many rows were removed.
--
-- Nobody writes under such a number any more: see queen_stream_register_v1.

CREATE OR REPLACE FUNCTION queen_stream_reclaim_v1(p_rows_max bigint)
RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
    v_state   bigint := 0;
    v_left    bigint := p_rows_max;
    v_count   bigint;
BEGIN
    WHILE v_left > 0 LOOP
        SELECT state INTO v_state
          FROM queen_stream_reclaim
         WHERE state > v_state
         ORDER BY state
         LIMIT 1
           FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;
        DELETE FROM queen_stream_state
         WHERE ctid = ANY (ARRAY(
               SELECT ctid FROM queen_stream_state
                WHERE state = v_state
                LIMIT v_left
                  FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_left := v_left - v_count;
        EXIT WHEN v_left <= 0;
        CONTINUE WHEN EXISTS (SELECT FROM queen_stream_state WHERE state = v_state);
        DELETE FROM queen_stream_reclaim WHERE state = v_state;
        v_left := v_left - 1;
    END LOOP;
    RETURN p_rows_max - v_left;
END;
$$;
