-- queen_message_lanes_v1: the partitions in which to look for the newest messages.
--
-- Called by  queen_message_list_v1
-- Reads      queen_queue, queen_partition, queen_dead_letter
-- Locks      nothing
-- Cost       for each queue that is meant a probe and at most p_limit partitions; with p_letters
--            at most 5000 letters, and the former only where there are more since p_from.
-- Answers    at most p_limit partitions that were written since p_from, the last written first;
--            with p_letters only such that have dead letters.
--
-- The n newest messages lie in the n partitions that were written last. last_write_at moves
-- once a second only, so a partition may come one second too late. A letter is younger than its
-- message, so the letters since p_from lead to every partition that is asked for; where
-- they are many, all partitions are looked at for letters.

CREATE OR REPLACE FUNCTION queen_message_lanes_v1(
    p_tenant_id uuid,
    p_queue     text,
    p_partition text,
    p_namespace text,
    p_task      text,
    p_from      timestamptz,
    p_letters   boolean,
    p_limit     integer
)
RETURNS TABLE (partition_id bigint)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_now     timestamptz := clock_timestamp();
    v_looks   constant integer := 5000;
    v_failed  timestamptz;
    v_letters bigint[];
BEGIN
    IF p_letters AND p_partition IS NULL THEN
        -- A minute more, for clocks that were put back.
        SELECT min(queue.since) - interval '1 minute' INTO v_failed
          FROM queen_message_queues_v1(p_tenant_id, p_queue, p_namespace, p_task, p_from, v_now)
                 AS queue;
        IF p_queue IS NULL THEN
            v_letters := ARRAY(
                SELECT letter.partition_id
                  FROM queen_dead_letter letter
                 WHERE letter.tenant_id = p_tenant_id AND letter.failed_at >= v_failed
                 ORDER BY letter.failed_at DESC
                 LIMIT v_looks + 1);
        ELSE
            v_letters := ARRAY(
                SELECT letter.partition_id
                  FROM queen_dead_letter letter
                 WHERE letter.queue_id = (SELECT queue.id
                                            FROM queen_queue queue
                                           WHERE queue.tenant_id = p_tenant_id
                                             AND queue.name = p_queue)
                   AND letter.failed_at >= v_failed
                 ORDER BY letter.failed_at DESC
                 LIMIT v_looks + 1);
        END IF;
        IF cardinality(v_letters) <= v_looks THEN
            RETURN QUERY
            SELECT lane.id
              FROM (SELECT DISTINCT unnest(v_letters) AS id) AS failed
              JOIN queen_partition lane ON lane.id = failed.id
             CROSS JOIN LATERAL (
                SELECT meant.since
                  FROM queen_message_queues_v1(p_tenant_id, p_queue, p_namespace, p_task, p_from,
                                               v_now) AS meant
                 WHERE meant.id = lane.queue_id
                 LIMIT 1
             ) AS queue
             WHERE lane.last_write_at >= queue.since - interval '1 second'
             ORDER BY lane.last_write_at DESC
             LIMIT p_limit;
            RETURN;
        END IF;
    END IF;
    IF p_partition IS NOT NULL THEN
        RETURN QUERY
        SELECT lane.id
          FROM queen_message_queues_v1(p_tenant_id, p_queue, p_namespace, p_task, p_from, v_now)
                 AS queue
          JOIN queen_partition lane ON lane.queue_id = queue.id AND lane.name = p_partition
         WHERE lane.last_write_at >= queue.since - interval '1 second'
         ORDER BY lane.last_write_at DESC
         LIMIT p_limit;
    ELSE
        RETURN QUERY
        SELECT newest.id
          FROM queen_message_queues_v1(p_tenant_id, p_queue, p_namespace, p_task, p_from, v_now)
                 AS queue
         CROSS JOIN LATERAL (
            SELECT lane.id, lane.last_write_at
              FROM queen_partition lane
             WHERE lane.queue_id = queue.id
               AND lane.last_write_at >= queue.since - interval '1 second'
               AND (NOT p_letters
                    OR EXISTS (SELECT FROM queen_dead_letter letter
                                WHERE letter.partition_id = lane.id))
             ORDER BY lane.last_write_at DESC
             LIMIT p_limit
         ) AS newest
         ORDER BY newest.last_write_at DESC
         LIMIT p_limit;
    END IF;
END;
$$;

-- The queues that are meant, and since when messages of each are listed: for as long as the
-- dedup window or completedRetentionSeconds, and 15 minutes at least.

CREATE OR REPLACE FUNCTION queen_message_queues_v1(
    p_tenant_id uuid,
    p_queue     text,
    p_namespace text,
    p_task      text,
    p_from      timestamptz,
    p_now       timestamptz
)
RETURNS TABLE (id bigint, since timestamptz)
LANGUAGE sql
STABLE
AS $$
    SELECT queue.id,
           greatest(p_from, p_now - make_interval(secs => greatest(
               queue.dedup_window_seconds, queue.completed_retention_seconds, 900)))
      FROM queen_queue queue
     WHERE queue.tenant_id = p_tenant_id
       AND (p_queue IS NULL OR queue.name = p_queue)
       AND (p_namespace IS NULL OR queue.namespace = p_namespace)
       AND (p_task IS NULL OR queue.task = p_task)
$$;
