-- queen_safe_time_v1: the instant before which no write can appear any more.
--
-- Called by  brokers/store/status_calls.py, safe_time()
-- Reads      pg_stat_activity
-- Locks      nothing
-- Cost       one row a connection of the server.
-- Answers    one row: the instant, and whether it is only guessed, because sessions of other roles
--            do not show us since when they write.
--
-- A write is stamped under its partition's lock and appears when it commits. The stamp is at most a
-- second older than the write, and that is not older than its transaction. A transaction has its number from
-- its first lock on, which is before it stamps: one without a number will stamp after now.

CREATE OR REPLACE FUNCTION queen_safe_time_v1(p_floor_ms bigint)
RETURNS TABLE (safe_at timestamptz, degraded boolean)
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
    v_now    timestamptz := clock_timestamp();
    v_oldest timestamptz;
    v_hidden boolean;
BEGIN
    SELECT min(session.xact_start) FILTER (WHERE session.backend_xid IS NOT NULL),
           coalesce(bool_or(session.query = '<insufficient privilege>'), false)
      INTO v_oldest, v_hidden
      FROM pg_stat_activity session
     WHERE session.datname = current_database();
    degraded := v_hidden;
    safe_at := CASE WHEN v_hidden
                    THEN v_now - make_interval(secs => p_floor_ms / 1000.0)
                    ELSE least(v_now - interval '5 seconds', v_oldest - interval '1 second')
               END;
    RETURN NEXT;
END;
$$;
