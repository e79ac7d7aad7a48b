-- queen_retention_due_v1: partitions in which retention may have something to delete now.
--
-- Called by  brokers/store/leader_calls.py, retention_due()
-- Reads      queen_queue, queen_partition: by two indexes, of each queue with a rule only those
--            entries whose time has come.
-- Locks      nothing
-- Cost       two probes a queue that has a rule, and the partitions that are answered.
-- Answers    ids, the longest due first, at most p_limit, without those of p_except.
--
-- Due is a partition whose oldest message is older than the shortest window of its queue,
-- unless a group has yet to consume that message: then it is due at retention_look_at.

CREATE OR REPLACE FUNCTION queen_retention_due_v1(p_limit integer, p_except bigint[])
RETURNS TABLE (partition_id bigint)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    SELECT due.id
      FROM (
        SELECT queue.id,
               least(CASE WHEN queue.retention_enabled
                          THEN nullif(queue.retention_seconds, 0) END,
                     CASE WHEN queue.retention_enabled
                          THEN nullif(queue.completed_retention_seconds, 0) END,
                     nullif(queue.max_wait_time_seconds, 0),
                     CASE WHEN queue.enforce
                          THEN nullif(least(queue.ttl, 3153600000), 0) END) AS window_s
          FROM queen_queue queue
         WHERE queue.retention_enabled OR queue.max_wait_time_seconds > 0 OR queue.enforce
      ) AS ruled
     CROSS JOIN LATERAL (
        (SELECT lane.id, lane.oldest_live_at + make_interval(secs => ruled.window_s) AS due_at
           FROM queen_partition lane
          WHERE lane.queue_id = ruled.id
            AND lane.retention_look_at IS NULL
            AND lane.oldest_live_at < v_now - make_interval(secs => ruled.window_s)
            AND lane.id <> ALL (p_except)
          ORDER BY lane.oldest_live_at
          LIMIT p_limit)
        UNION ALL
        (SELECT lane.id, lane.retention_look_at
           FROM queen_partition lane
          WHERE lane.queue_id = ruled.id
            AND lane.retention_look_at <= v_now
            AND lane.id <> ALL (p_except)
          ORDER BY lane.retention_look_at
          LIMIT p_limit)
     ) AS due
     ORDER BY due.due_at
     LIMIT p_limit;
END;
$$;
