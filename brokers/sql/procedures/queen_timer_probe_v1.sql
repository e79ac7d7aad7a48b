-- queen_timer_probe_v1: whether timers are due, since when, and when the next will be.
--
-- Called by  brokers/store/timer_calls.py, timer_probe(), once a cycle of every sweeper
-- Reads      queen_timer, by its index alone: the front of each of the 64 shards
-- Locks      nothing
-- Cost       two descents a shard, and at most p_due_cap due entries; how many timers lie
--            ahead makes no difference.
-- Answers    one row: due (at most p_due_cap), microseconds the oldest is late (null: none
--            due), microseconds until the next is due (null: none). A claimed timer counts
--            as due when its lease ends, one that backs off when it is tried again.

CREATE OR REPLACE FUNCTION queen_timer_probe_v1(p_due_cap integer)
RETURNS TABLE (due bigint, late_us bigint, next_us bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
DECLARE
    v_now    timestamptz := clock_timestamp();
    v_oldest timestamptz;
    v_next   timestamptz;
BEGIN
    SELECT min(front.visible_at), min(ahead.visible_at) INTO v_oldest, v_next
      FROM generate_series(0, 63) AS given(shard)
      LEFT JOIN LATERAL (
            SELECT timer.visible_at FROM queen_timer timer
             WHERE timer.shard = given.shard::smallint AND timer.visible_at <= v_now
             ORDER BY timer.visible_at LIMIT 1) AS front ON true
      LEFT JOIN LATERAL (
            SELECT timer.visible_at FROM queen_timer timer
             WHERE timer.shard = given.shard::smallint AND timer.visible_at > v_now
             ORDER BY timer.visible_at LIMIT 1) AS ahead ON true;
    due := 0;
    IF v_oldest IS NOT NULL THEN
        SELECT count(*) INTO due
          FROM (
            SELECT
              FROM generate_series(0, 63) AS given(shard)
             CROSS JOIN LATERAL (
                    SELECT FROM queen_timer timer
                     WHERE timer.shard = given.shard::smallint AND timer.visible_at <= v_now
                     LIMIT p_due_cap) AS front
             LIMIT p_due_cap
          ) AS found;
    END IF;
    late_us := extract(epoch FROM v_now - v_oldest) * 1000000;
    next_us := extract(epoch FROM v_next - v_now) * 1000000;
    RETURN NEXT;
END;
$$;
