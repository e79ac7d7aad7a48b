-- queen_timer_reclaim_v1: one bounded step of removing the timers of deleted queues.
--
-- Called by  queen_queue_reclaim_v1
-- Reads      queen_timer_reclaim, queen_timer
-- Writes     queen_timer, queen_timer_reclaim
-- Locks      queen_timer_reclaim and timer rows, skipping what others hold: brokers share the
--            work and nobody waits.
-- Cost       about p_rows_max timers looked at, and 64 MiB of payloads.
-- Answers    how much was done: timers removed, and those passed by where a pass goes on. 0:
--            there is nothing to do now.
--
-- A pass goes over all keys of the queue, the living ones of its successor too. While a row
-- stands in queen_timer_reclaim its dead timers are gone for every reader, so it may only
-- leave when none is left and none can come: a schedule that saw no delete may still be about
-- to commit. Each has its transaction id before it looks (queen_timer_apply_v1), so all of
-- them lie below the horizon, which is read when the delete can be seen. A pass that begins
-- when nothing below the horizon runs any more, and that skips nothing, is the last.

CREATE OR REPLACE FUNCTION queen_timer_reclaim_v1(p_rows_max bigint)
RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET lock_timeout = '200ms'
AS $$
DECLARE
    v_gone    queen_timer_reclaim;
    v_left    bigint := p_rows_max;
    v_bytes   bigint := 67108864;
    v_done    bigint := 0;
    v_dead    tid[];
    v_last    text;
    v_looked  bigint;
    v_size    bigint;
    v_more    boolean;
    v_removed bigint;
BEGIN
    FOR v_gone IN
        SELECT gone.* FROM queen_timer_reclaim gone
         ORDER BY gone.tenant_id, gone.queue
         LIMIT p_rows_max
           FOR UPDATE SKIP LOCKED
    LOOP
        EXIT WHEN v_left <= 0 OR v_bytes <= 0;
        IF v_gone.swept_to = '' THEN
            v_gone.settled := coalesce(
                pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= v_gone.horizon, false);
            CONTINUE WHEN v_gone.horizon IS NOT NULL AND NOT v_gone.settled;
            v_gone.skipped := false;
            v_gone.horizon := coalesce(
                v_gone.horizon, pg_snapshot_xmax(pg_current_snapshot())::text::bigint);
        END IF;

        SELECT count(*), max(sized.timer_key), coalesce(sum(sized.size), 0),
               count(*) = v_left OR bool_or(sized.before + sized.size >= v_bytes),
               coalesce(array_agg(sized.place)
                        FILTER (WHERE sized.generation < v_gone.generation), '{}')
          INTO v_looked, v_last, v_size, v_more, v_dead
          FROM (
            SELECT ahead.*, sum(ahead.size) OVER (ORDER BY ahead.timer_key) - ahead.size AS before
              FROM (
                SELECT timer.ctid AS place, timer.timer_key, timer.generation,
                       CASE WHEN timer.generation < v_gone.generation
                            THEN octet_length(timer.payload) ELSE 0 END AS size
                  FROM queen_timer timer
                 WHERE timer.tenant_id = v_gone.tenant_id
                   AND timer.queue = v_gone.queue
                   AND timer.timer_key > v_gone.swept_to
                 ORDER BY timer.timer_key
                 LIMIT v_left) AS ahead
          ) AS sized
         WHERE sized.before < v_bytes;

        -- Asked anew under the lock: a row may have made way for another in its place. In
        -- words that no index knows, so that rows are found by their places.
        DELETE FROM queen_timer
         WHERE ctid = ANY (ARRAY(
               SELECT timer.ctid
                 FROM unnest(v_dead) AS seen(place)
                 JOIN queen_timer timer ON timer.ctid = seen.place
                WHERE timer.tenant_id IS NOT DISTINCT FROM v_gone.tenant_id
                  AND timer.queue IS NOT DISTINCT FROM v_gone.queue
                  AND timer.generation < v_gone.generation
                  FOR UPDATE OF timer SKIP LOCKED));
        GET DIAGNOSTICS v_removed = ROW_COUNT;
        v_gone.skipped := v_gone.skipped OR v_removed < cardinality(v_dead);
        v_left := v_left - v_looked;
        v_bytes := v_bytes - v_size;

        IF v_more THEN
            v_gone.swept_to := v_last;
            v_done := v_done + v_looked;
        ELSIF v_gone.settled AND NOT v_gone.skipped THEN
            DELETE FROM queen_timer_reclaim
             WHERE tenant_id = v_gone.tenant_id AND queue = v_gone.queue;
            v_done := v_done + v_removed;
            CONTINUE;
        ELSE
            v_gone.swept_to := '';
            v_done := v_done + v_removed;
        END IF;
        UPDATE queen_timer_reclaim
           SET swept_to = v_gone.swept_to, settled = v_gone.settled, skipped = v_gone.skipped,
               horizon = v_gone.horizon
         WHERE tenant_id = v_gone.tenant_id AND queue = v_gone.queue;
    END LOOP;
    RETURN v_done;
END;
$$;
