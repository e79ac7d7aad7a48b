-- queen_statistics_step_v1: count some queues anew, those first that were not counted longest.
--
-- Called by  brokers/store/leader_calls.py, statistics_step(), until it counts none
-- Reads      queen_lease, queen_queue, queen_queue_statistics, and what queen_queue_figures_v1,
--            queen_group_figures_v1 and queen_letter_count_v1 read
-- Writes     queen_queue_statistics, queen_group_statistics, queen_letter_statistics,
--            queen_queue_counter
-- Locks      an advisory lock: steps that write figures are one after the other. Then each queue's
--            row (key share: a delete waits for us), its figures', those of its groups, and of
--            its fullest partitions.
-- Cost       p_budget_ms, or one queue if that takes longer; a sort of the queues.
-- Answers    one row: how many queues were counted, and their partitions, and the instant to be
--            given as p_since from then on: what was counted after it is not counted again.
--
-- A null token is that of somebody who asked for it: it counts what is not due, too. A queue
-- that takes long to count is counted more seldom: at most a twentieth of one processor goes
-- into each.

CREATE OR REPLACE FUNCTION queen_statistics_step_v1(
    p_token     bigint,
    p_since     timestamptz,
    p_budget_ms integer
)
RETURNS TABLE (queues bigint, partitions bigint, since timestamptz)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_began   timestamptz;
    v_from    timestamptz;
    v_queue   record;
    v_figures record;
    v_lanes   record;
    v_took    interval;
BEGIN
    queues := 0;
    partitions := 0;
    IF p_token IS NOT NULL AND NOT queen_lease_held_v1('statistics', p_token) THEN
        RETURN NEXT;
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('queen_queue_statistics', 0));
    PERFORM set_config('synchronous_commit', 'off', true);
    v_began := clock_timestamp();
    since := coalesce(p_since, v_began);
    FOR v_queue IN
        SELECT queue.id, known.computed_at AS counted_at
          FROM queen_queue queue
          LEFT JOIN queen_queue_statistics known ON known.queue_id = queue.id
         WHERE known.queue_id IS NULL
            OR known.computed_at < since
               AND (p_token IS NULL OR known.next_at <= v_began)
            -- Written under a clock that has been put back since.
            OR known.computed_at > v_began + interval '1 minute'
         ORDER BY known.computed_at NULLS FIRST, queue.id
    LOOP
        EXIT WHEN queues > 0
              AND clock_timestamp() > v_began + make_interval(secs => p_budget_ms / 1000.0);
        v_from := clock_timestamp();
        PERFORM 1 FROM queen_queue queue WHERE queue.id = v_queue.id FOR KEY SHARE;
        CONTINUE WHEN NOT FOUND;
        -- First: the figures of the queue have those of its fullest partitions from there.
        PERFORM queen_letter_count_v1(v_queue.id);
        SELECT * INTO v_figures FROM queen_queue_figures_v1(v_queue.id);
        SELECT count(*) FILTER (WHERE lane.last_write_at > v_from - interval '1 hour') AS h1,
               count(*) FILTER (WHERE lane.last_write_at > v_from - interval '1 day') AS h24,
               count(*) FILTER (WHERE lane.last_write_at > v_from - interval '7 days') AS d7,
               count(*) FILTER (WHERE lane.created_at > v_from - interval '1 day') AS born,
               count(*) FILTER (WHERE lane.created_at >= v_queue.counted_at) AS fresh,
               min(lane.last_write_at) AS oldest, max(lane.last_write_at) AS newest
          INTO v_lanes
          FROM queen_partition lane
         WHERE lane.queue_id = v_queue.id;
        PERFORM queen_group_count_v1(v_queue.id, v_from);
        IF coalesce(v_queue.counted_at, '-infinity') > v_from - interval '1 hour'
           AND v_lanes.fresh > 0 THEN
            PERFORM queen_partition_born_v1(v_queue.id, v_lanes.fresh);
        END IF;
        v_took := clock_timestamp() - v_from;
        INSERT INTO queen_queue_statistics (
               queue_id, computed_at, next_at, partitions, total, pending, processing,
               completed, dead_letters, written_1h, written_24h, written_7d, created_24h,
               oldest_write_at, newest_write_at)
        SELECT queue.id, v_from, v_from + least(v_took * 20, interval '5 minutes'),
               v_figures.partitions, v_figures.total, v_figures.pending, v_figures.processing,
               v_figures.completed, v_figures.dead_letters, v_lanes.h1, v_lanes.h24,
               v_lanes.d7, v_lanes.born, v_lanes.oldest, v_lanes.newest
          FROM queen_queue queue
         WHERE queue.id = v_queue.id
        ON CONFLICT (queue_id) DO UPDATE
           SET computed_at = excluded.computed_at, next_at = excluded.next_at,
               partitions = excluded.partitions, total = excluded.total,
               pending = excluded.pending, processing = excluded.processing,
               completed = excluded.completed, dead_letters = excluded.dead_letters,
               written_1h = excluded.written_1h, written_24h = excluded.written_24h,
               written_7d = excluded.written_7d, created_24h = excluded.created_24h,
               oldest_write_at = excluded.oldest_write_at,
               newest_write_at = excluded.newest_write_at;
        queues := queues + 1;
        partitions := partitions + v_figures.partitions;
    END LOOP;
    RETURN NEXT;
END;
$$;
