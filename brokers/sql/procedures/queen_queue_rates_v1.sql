-- queen_queue_rates_v1: what every queue did in its latest minute, and what it has given up on.
--
-- Called by  brokers/store/status_calls.py, queue_rates()
-- Reads      queen_queue, queen_queue_counter, queen_queue_statistics
-- Locks      nothing
-- Cost       the kept minutes of the last five, and one probe a queue.
-- Answers    one row a name, of all tenants' queues of that name together, at most p_limit, the
--            busiest first. A queue without a minute in the last five has a null age.

CREATE OR REPLACE FUNCTION queen_queue_rates_v1(p_limit integer)
RETURNS TABLE (
    name text, age_s double precision, push_requests bigint, push_messages bigint,
    pop_messages bigint, pop_empty bigint, ack_success bigint, ack_failed bigint,
    transactions bigint, conflated bigint, parked double precision, pop_lag_ms bigint,
    pop_lag_count bigint, pop_lag_max_ms bigint, dead_letters bigint
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    WITH kept AS MATERIALIZED (
        SELECT counted.*, max(counted.bucket) OVER (PARTITION BY counted.queue_id) AS latest
          FROM queen_queue_counter counted
         WHERE counted.span = 1 AND counted.bucket > v_now - interval '5 minutes'
           AND counted.server_id <> ''
    ), minute AS MATERIALIZED (
        SELECT kept.queue_id, kept.bucket, sum(kept.push_requests) AS push_requests,
               sum(kept.push_messages) AS push_messages, sum(kept.pop_messages) AS pop_messages,
               sum(kept.pop_empty) AS pop_empty, sum(kept.ack_success) AS ack_success,
               sum(kept.ack_failed) AS ack_failed, sum(kept.transactions) AS transactions,
               sum(kept.conflated) AS conflated,
               sum(kept.parked::double precision / greatest(kept.parked_samples, 1)) AS parked,
               sum(kept.pop_lag_ms) AS pop_lag_ms, sum(kept.pop_lag_count) AS pop_lag_count,
               max(kept.pop_lag_max_ms) AS pop_lag_max_ms
          FROM kept
         WHERE kept.bucket = kept.latest
         GROUP BY kept.queue_id, kept.bucket
    )
    SELECT queue.name,
           extract(epoch FROM v_now - max(minute.bucket))::double precision,
           coalesce(sum(minute.push_requests), 0)::bigint,
           coalesce(sum(minute.push_messages), 0)::bigint,
           coalesce(sum(minute.pop_messages), 0)::bigint,
           coalesce(sum(minute.pop_empty), 0)::bigint,
           coalesce(sum(minute.ack_success), 0)::bigint,
           coalesce(sum(minute.ack_failed), 0)::bigint,
           coalesce(sum(minute.transactions), 0)::bigint,
           coalesce(sum(minute.conflated), 0)::bigint, coalesce(sum(minute.parked), 0),
           coalesce(sum(minute.pop_lag_ms), 0)::bigint,
           coalesce(sum(minute.pop_lag_count), 0)::bigint,
           coalesce(max(minute.pop_lag_max_ms), 0)::bigint,
           coalesce(sum(known.dead_letters), 0)::bigint
      FROM queen_queue queue
      LEFT JOIN minute ON minute.queue_id = queue.id
      LEFT JOIN queen_queue_statistics known ON known.queue_id = queue.id
     GROUP BY queue.name
    HAVING max(minute.bucket) IS NOT NULL OR sum(known.dead_letters) > 0
     ORDER BY coalesce(sum(minute.push_messages + minute.pop_messages), 0) DESC, queue.name
     LIMIT p_limit;
END;
$$;
