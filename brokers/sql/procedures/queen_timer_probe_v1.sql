-- queen_timer_probe_v1: whether timers are due, since when, and when the next will be.
--
-- Called by  brokers/store/timer_calls.py, timer_probe(), once a cycle of every sweeper
-- Reads      queen_timer, by its index alone: the front of each of the 64 shards
-- Locks      nothing
-- Cost       a descent a shard; where something is due, two more, and at most p_due_cap due
--            entries. How many timers lie ahead makes no difference.
-- Answers    one row: due (at most p_due_cap), microseconds the oldest is late (null: none
--            due), microseconds until the next is due (null: none within p_ahead_ms). A
--            claimed timer counts as due when its lease ends, one that backs off when it is
--            tried again.
--
-- Nobody sleeps longer than p_ahead_ms, so what is due later need not be looked for: a scan
-- without an upper end would read a whole page of each shard to find its first entry.

CREATE OR REPLACE FUNCTION queen_timer_probe_v1(p_due_cap integer, p_ahead_ms bigint)
RETURNS TABLE (due bigint, late_us bigint, next_us bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
DECLARE
    v_now    timestamptz := clock_timestamp();
    v_until  timestamptz := v_now + p_ahead_ms * interval '1 millisecond';
    v_oldest timestamptz;
    v_next   timestamptz;
BEGIN
    SELECT min(front.visible_at) INTO v_next
      FROM generate_series(0, 63) AS given(shard)
     CROSS JOIN LATERAL (
            SELECT timer.visible_at FROM queen_timer timer
             WHERE timer.shard = given.shard::smallint AND timer.visible_at <= v_until
             ORDER BY timer.visible_at LIMIT 1) AS front;
    due := 0;
    IF v_next <= v_now THEN
        v_oldest := v_next;
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
        SELECT min(ahead.visible_at) INTO v_next
          FROM generate_series(0, 63) AS given(shard)
         CROSS JOIN LATERAL (
                SELECT timer.visible_at FROM queen_timer timer
                 WHERE timer.shard = given.shard::smallint
                   AND timer.visible_at > v_now AND timer.visible_at <= v_until
                 ORDER BY timer.visible_at LIMIT 1) AS ahead;
    END IF;
    late_us := extract(epoch FROM v_now - v_oldest) * 1000000;
    next_us := extract(epoch FROM v_next - v_now) * 1000000;
    RETURN NEXT;
END;
$$;
