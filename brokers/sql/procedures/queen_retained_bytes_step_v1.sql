-- queen_retained_bytes_step_v1: measure anew what some queues hold, as queen_statistics_step_v1.
--
-- Called by  brokers/store/leader_calls.py, retained_bytes_step(), until it measures none
-- Reads      queen_lease, queen_queue_statistics, queen_partition, queen_segment
-- Writes     queen_queue_statistics (segments, bytes, bytes_at)
-- Locks      the advisory lock of the figures, then their rows. Queues that were not counted
--            yet are left out.
-- Cost       p_budget_ms, or one queue if that takes longer; at most p_segments_max segments
--            a queue.
-- Answers    one row: how many were measured, and the instant to be given as p_since from
--            then on.

CREATE OR REPLACE FUNCTION queen_retained_bytes_step_v1(
    p_token        bigint,
    p_since        timestamptz,
    p_segments_max integer,
    p_budget_ms    integer
)
RETURNS TABLE (queues bigint, since timestamptz)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_began  timestamptz;
    v_queue  record;
    v_stored record;
BEGIN
    queues := 0;
    IF NOT queen_lease_held_v1('retained-bytes', p_token) THEN
        RETURN NEXT;
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('queen_queue_statistics', 0));
    PERFORM set_config('synchronous_commit', 'off', true);
    v_began := clock_timestamp();
    since := coalesce(p_since, v_began);
    FOR v_queue IN
        SELECT known.queue_id, known.total
          FROM queen_queue_statistics known
         WHERE known.bytes_at IS NULL OR known.bytes_at < since
            OR known.bytes_at > v_began + interval '1 minute'
         ORDER BY known.bytes_at NULLS FIRST, known.queue_id
    LOOP
        EXIT WHEN queues > 0
              AND clock_timestamp() > v_began + make_interval(secs => p_budget_ms / 1000.0);
        SELECT * INTO v_stored
          FROM queen_segment_figures_v1(v_queue.queue_id, v_queue.total, p_segments_max);
        UPDATE queen_queue_statistics
           SET segments = v_stored.segments, bytes = v_stored.bytes,
               bytes_at = clock_timestamp()
         WHERE queue_id = v_queue.queue_id;
        queues := queues + 1;
    END LOOP;
    RETURN NEXT;
END;
$$;
