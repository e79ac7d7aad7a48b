-- queen_history_purge_v1: one bounded step of forgetting counters and history of long ago.
--
-- Called by  brokers/store/leader_calls.py, history_purge()
-- Reads      queen_lease, queen_queue_counter, queen_broker_history, queen_retention_history
-- Writes     queen_queue_counter, queen_broker_history, queen_retention_history
-- Locks      the rows that go; brokers write only the present minute.
-- Cost       about p_rows_max rows of each, from the old end of their keys.
-- Answers    how many rows went.

CREATE OR REPLACE FUNCTION queen_history_purge_v1(
    p_token    bigint,
    p_days     integer,
    p_rows_max integer
)
RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
    v_before  timestamptz := clock_timestamp() - make_interval(days => p_days);
    v_removed bigint := 0;
    v_count   bigint;
    v_span    smallint;
BEGIN
    IF NOT queen_lease_held_v1('retention', p_token) THEN
        RETURN 0;
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    FOREACH v_span IN ARRAY ARRAY[1, 15, 60, 360]::smallint[] LOOP
        DELETE FROM queen_queue_counter
         WHERE ctid = ANY (ARRAY(
               SELECT ctid FROM queen_queue_counter
                WHERE span = v_span AND bucket < v_before ORDER BY bucket LIMIT p_rows_max));
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_removed := v_removed + v_count;
    END LOOP;
    DELETE FROM queen_broker_history
     WHERE ctid = ANY (ARRAY(
           SELECT ctid FROM queen_broker_history
            WHERE bucket < v_before ORDER BY bucket LIMIT p_rows_max));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_removed := v_removed + v_count;
    DELETE FROM queen_retention_history
     WHERE ctid = ANY (ARRAY(
           SELECT ctid FROM queen_retention_history
            WHERE bucket < v_before ORDER BY bucket LIMIT p_rows_max));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_removed + v_count;
END;
$$;
