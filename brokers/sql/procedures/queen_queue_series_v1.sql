-- queen_queue_series_v1: what was counted over time for a tenant's queues, or groups of them.
--
-- Called by  brokers/store/history_calls.py, queue_series()
-- Reads      queen_queue, queen_queue_counter, queen_retention_history
-- Locks      nothing
-- Cost       grows with the kept buckets of the window, of all queues: sixty rows an hour, a queue
--            and a broker for a window of up to an hour.
--            Hash joins and hash aggregates: whatever else a planner without statistics takes for few
--            keys is five times as slow for a thousand queues.
-- Answers    one row a bucket and key, by bucket and key, of the p_keys_max keys that were busiest.
--            The key is a queue, a namespace or a task, or for an empty p_by one for all.
--            p_tenant_id null: of all tenants. parked is the mean number of pops that waited, over all brokers.

CREATE OR REPLACE FUNCTION queen_queue_series_v1(
    p_tenant_id uuid,
    p_by        text,
    p_queue     text,
    p_namespace text,
    p_task      text,
    p_from      timestamptz,
    p_to        timestamptz,
    p_minutes   integer,
    p_keys_max  integer
)
RETURNS TABLE (
    key text, bucket timestamptz,
    push_requests bigint, push_messages bigint, pop_requests bigint, pop_messages bigint,
    pop_empty bigint, ack_requests bigint, ack_success bigint, ack_failed bigint,
    transactions bigint, conflated bigint, dead_letters bigint, pop_lag_ms bigint,
    pop_lag_count bigint, pop_lag_max_ms bigint, parked double precision,
    partitions_created bigint, partitions_deleted bigint
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_nestloop = off
SET enable_sort = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_now  timestamptz := clock_timestamp();
    v_span smallint := queen_history_span_v1(p_minutes);
    v_keys text[];
BEGIN
    IF p_by = '' THEN
        v_keys := ARRAY[''];
    ELSE
        -- The busiest first, by one sum a queue: adding up everything of everybody takes ten
        -- times as long.
        v_keys := ARRAY(
            SELECT CASE p_by WHEN 'queue' THEN queue.name
                             WHEN 'namespace' THEN queue.namespace
                             WHEN 'task' THEN queue.task
                             ELSE '' END AS key
              FROM (
                SELECT kept.queue_id, sum(kept.push_messages + kept.pop_messages) AS moved
                  FROM queen_queue_counter kept
                 WHERE kept.span = v_span AND kept.bucket >= queen_bucket_v1(p_from, p_minutes)
                   AND kept.bucket < p_to
                 GROUP BY kept.queue_id
              ) AS counted
              JOIN queen_queue queue ON queue.id = counted.queue_id
             WHERE (p_tenant_id IS NULL OR queue.tenant_id = p_tenant_id)
               AND (p_queue IS NULL OR queue.name = p_queue)
               AND (p_namespace IS NULL OR queue.namespace = p_namespace)
               AND (p_task IS NULL OR queue.task = p_task)
             GROUP BY 1
             ORDER BY sum(counted.moved) DESC, 1
             LIMIT p_keys_max);
    END IF;

    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT queue.id,
               CASE p_by WHEN 'queue' THEN queue.name
                         WHEN 'namespace' THEN queue.namespace
                         WHEN 'task' THEN queue.task
                         ELSE '' END AS key
          FROM queen_queue queue
         WHERE (p_tenant_id IS NULL OR queue.tenant_id = p_tenant_id)
           AND (p_queue IS NULL OR queue.name = p_queue)
           AND (p_namespace IS NULL OR queue.namespace = p_namespace)
           AND (p_task IS NULL OR queue.task = p_task)
    ), counted AS MATERIALIZED (
        SELECT asked.key, queen_bucket_v1(kept.bucket, p_minutes) AS bucket,
               sum(kept.push_requests)::bigint AS push_requests,
               sum(kept.push_messages)::bigint AS push_messages,
               sum(kept.pop_requests)::bigint AS pop_requests,
               sum(kept.pop_messages)::bigint AS pop_messages,
               sum(kept.pop_empty)::bigint AS pop_empty,
               sum(kept.ack_requests)::bigint AS ack_requests,
               sum(kept.ack_success)::bigint AS ack_success,
               sum(kept.ack_failed)::bigint AS ack_failed,
               sum(kept.transactions)::bigint AS transactions,
               sum(kept.conflated)::bigint AS conflated,
               sum(kept.dead_letters)::bigint AS dead_letters,
               sum(kept.pop_lag_ms)::bigint AS pop_lag_ms,
               sum(kept.pop_lag_count)::bigint AS pop_lag_count,
               max(kept.pop_lag_max_ms) AS pop_lag_max_ms,
               sum(kept.parked::double precision / greatest(kept.parked_samples, 1)) AS parked,
               sum(kept.partitions_created)::bigint AS partitions_created
          FROM queen_queue_counter kept
          JOIN asked ON asked.id = kept.queue_id AND asked.key = ANY (v_keys)
         WHERE kept.span = v_span AND kept.bucket >= queen_bucket_v1(p_from, p_minutes)
           AND kept.bucket < p_to
         GROUP BY 1, 2
    ), deleted AS MATERIALIZED (
        SELECT asked.key, queen_bucket_v1(kept.bucket, p_minutes) AS bucket,
               sum(kept.partitions_deleted)::bigint AS partitions_deleted
          FROM queen_retention_history kept
          JOIN asked ON asked.id = kept.queue_id
         WHERE kept.bucket >= queen_bucket_v1(p_from, p_minutes) AND kept.bucket < p_to
           AND kept.partitions_deleted > 0
         GROUP BY 1, 2
    )
    SELECT key, bucket,
           coalesce(counted.push_requests, 0),
           coalesce(counted.push_messages, 0),
           coalesce(counted.pop_requests, 0),
           coalesce(counted.pop_messages, 0),
           coalesce(counted.pop_empty, 0),
           coalesce(counted.ack_requests, 0),
           coalesce(counted.ack_success, 0),
           coalesce(counted.ack_failed, 0),
           coalesce(counted.transactions, 0),
           coalesce(counted.conflated, 0),
           coalesce(counted.dead_letters, 0),
           coalesce(counted.pop_lag_ms, 0),
           coalesce(counted.pop_lag_count, 0),
           coalesce(counted.pop_lag_max_ms, 0),
           -- Summed over brokers, and the mean over those kept buckets that have passed.
           coalesce(counted.parked / least(
               greatest(ceil(extract(epoch FROM v_now - bucket) / 60 / v_span), 1),
               p_minutes / v_span)::double precision, 0),
           coalesce(counted.partitions_created, 0), coalesce(deleted.partitions_deleted, 0)
      FROM counted
      FULL JOIN deleted USING (key, bucket)
     WHERE deleted.partitions_deleted > 0 AND p_by = ''
        OR key = ANY (v_keys)
     ORDER BY bucket, key;
END;
$$;
