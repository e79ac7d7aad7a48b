-- queen_broker_series_v1: what brokers counted and measured of themselves over time.
--
-- Called by  brokers/store/history_calls.py, broker_series()
-- Reads      queen_broker_history
-- Locks      nothing
-- Cost       grows with the minutes of the window and the brokers.
-- Answers    one row a bucket and broker, by both:
--              minutes  in how many minutes of the bucket it was heard of
--              counts   13 sums: push_requests, push_messages, pop_requests, pop_messages,
--                       ack_requests, ack_messages, ack_success, ack_failed, transactions,
--                       dead_letters, db_errors, pop_lag_ms, pop_lag_count
--              means, lows, highs, lasts  of 9 gauges: loop_lag_us, cpu_user, cpu_system, rss_bytes, pool_size, pool_idle,
--                       waiting, parked, uptime_s
--              spool    the last told of spool_pending, spool_bytes, spool_failed; null where
--                       its broker did not tell them

CREATE OR REPLACE FUNCTION queen_broker_series_v1(
    p_from      timestamptz,
    p_to        timestamptz,
    p_minutes   integer,
    p_server_id text
)
RETURNS TABLE (
    bucket timestamptz, server_id text, minutes bigint, counts bigint[], pop_lag_max_ms bigint,
    loop_lag_max_us bigint, means double precision[], lows bigint[], highs bigint[],
    lasts bigint[], spool bigint[]
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT queen_bucket_v1(kept.bucket, p_minutes), kept.server_id, count(*),
           ARRAY[
                sum(kept.push_requests)::bigint,
                sum(kept.push_messages)::bigint,
                sum(kept.pop_requests)::bigint,
                sum(kept.pop_messages)::bigint,
                sum(kept.ack_requests)::bigint,
                sum(kept.ack_messages)::bigint,
                sum(kept.ack_success)::bigint,
                sum(kept.ack_failed)::bigint,
                sum(kept.transactions)::bigint,
                sum(kept.dead_letters)::bigint,
                sum(kept.db_errors)::bigint,
                sum(kept.pop_lag_ms)::bigint,
                sum(kept.pop_lag_count)::bigint],
           max(kept.pop_lag_max_ms), max(kept.loop_lag_max_us),
           ARRAY[
                avg(kept.loop_lag_us)::double precision,
                avg(kept.cpu_user)::double precision,
                avg(kept.cpu_system)::double precision,
                avg(kept.rss_bytes)::double precision,
                avg(kept.pool_size)::double precision,
                avg(kept.pool_idle)::double precision,
                avg(kept.waiting)::double precision,
                avg(kept.parked)::double precision,
                avg(kept.uptime_s)::double precision],
           ARRAY[
                min(kept.loop_lag_us),
                min(kept.cpu_user),
                min(kept.cpu_system),
                min(kept.rss_bytes),
                min(kept.pool_size),
                min(kept.pool_idle),
                min(kept.waiting),
                min(kept.parked),
                min(kept.uptime_s)],
           ARRAY[
                max(kept.loop_lag_us),
                max(kept.cpu_user),
                max(kept.cpu_system),
                max(kept.rss_bytes),
                max(kept.pool_size),
                max(kept.pool_idle),
                max(kept.waiting),
                max(kept.parked),
                max(kept.uptime_s)],
           ARRAY[
                (array_agg(kept.loop_lag_us ORDER BY kept.bucket DESC))[1],
                (array_agg(kept.cpu_user ORDER BY kept.bucket DESC))[1],
                (array_agg(kept.cpu_system ORDER BY kept.bucket DESC))[1],
                (array_agg(kept.rss_bytes ORDER BY kept.bucket DESC))[1],
                (array_agg(kept.pool_size ORDER BY kept.bucket DESC))[1],
                (array_agg(kept.pool_idle ORDER BY kept.bucket DESC))[1],
                (array_agg(kept.waiting ORDER BY kept.bucket DESC))[1],
                (array_agg(kept.parked ORDER BY kept.bucket DESC))[1],
                (array_agg(kept.uptime_s ORDER BY kept.bucket DESC))[1]],
           ARRAY[
                (array_agg(kept.spool_pending ORDER BY kept.bucket DESC))[1],
                (array_agg(kept.spool_bytes ORDER BY kept.bucket DESC))[1],
                (array_agg(kept.spool_failed ORDER BY kept.bucket DESC))[1]]
      FROM queen_broker_history kept
     WHERE kept.bucket >= queen_bucket_v1(p_from, p_minutes) AND kept.bucket < p_to
       AND (p_server_id IS NULL OR kept.server_id = p_server_id)
     GROUP BY 1, 2
     ORDER BY 1, 2;
END;
$$;
