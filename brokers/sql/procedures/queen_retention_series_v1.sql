-- queen_retention_series_v1: what retention deleted over time.
--
-- Called by  brokers/store/history_calls.py, retention_series()
-- Reads      queen_retention_history, queen_queue
-- Locks      nothing
-- Cost       grows with the minutes of the window in which something was deleted, of all queues;
--            they are read twice where keys are asked for.
-- Answers    one row for each bucket that has any, by time (null key); one for each of the p_keys_max
--            keys with most (null bucket), unless p_by is empty; at last one for the whole window
--            (both null). `queues` is that of a key. A queue that is gone is in the sums and under
--            no key.

CREATE OR REPLACE FUNCTION queen_retention_series_v1(
    p_tenant_id uuid,
    p_by        text,
    p_queue     text,
    p_from      timestamptz,
    p_to        timestamptz,
    p_minutes   integer,
    p_keys_max  integer
)
RETURNS TABLE (
    key text, bucket timestamptz, queues bigint, retention bigint, completed bigint,
    eviction bigint, events bigint
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    -- By queue first: what is added up for keys is then one row a queue.
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT queue.id,
               CASE p_by WHEN 'queue' THEN queue.name
                         WHEN 'namespace' THEN queue.namespace
                         WHEN 'task' THEN queue.task END AS key
          FROM queen_queue queue
         WHERE queue.tenant_id = p_tenant_id AND (p_queue IS NULL OR queue.name = p_queue)
    ), by_bucket AS (
        SELECT queen_bucket_v1(history.bucket, p_minutes) AS bucket,
               sum(history.retention_messages)::bigint AS retention,
               sum(history.completed_messages)::bigint AS completed,
               sum(history.eviction_messages)::bigint AS eviction,
               sum(history.events)::bigint AS events
          FROM queen_retention_history history
         WHERE history.bucket >= queen_bucket_v1(p_from, p_minutes) AND history.bucket < p_to
           AND history.tenant_id = p_tenant_id
           AND (p_queue IS NULL OR history.queue_id IN (SELECT asked.id FROM asked))
         GROUP BY 1
    ), by_queue AS (
        SELECT history.queue_id,
               sum(history.retention_messages)::bigint AS retention,
               sum(history.completed_messages)::bigint AS completed,
               sum(history.eviction_messages)::bigint AS eviction,
               sum(history.events)::bigint AS events
          FROM queen_retention_history history
         WHERE history.bucket >= queen_bucket_v1(p_from, p_minutes) AND history.bucket < p_to
           AND history.tenant_id = p_tenant_id AND p_by <> ''
           AND (p_queue IS NULL OR history.queue_id IN (SELECT asked.id FROM asked))
         GROUP BY history.queue_id
    ), by_key AS (
        SELECT asked.key, count(*) AS queues, sum(by_queue.retention)::bigint AS retention,
               sum(by_queue.completed)::bigint AS completed,
               sum(by_queue.eviction)::bigint AS eviction, sum(by_queue.events)::bigint AS events
          FROM by_queue
          JOIN asked ON asked.id = by_queue.queue_id
         WHERE asked.key IS NOT NULL
         GROUP BY asked.key
         ORDER BY sum(by_queue.retention + by_queue.completed + by_queue.eviction) DESC,
                  asked.key
         LIMIT p_keys_max
    )
    (SELECT NULL::text, by_bucket.bucket, NULL::bigint, by_bucket.retention, by_bucket.completed,
            by_bucket.eviction, by_bucket.events
       FROM by_bucket
      ORDER BY by_bucket.bucket)
    UNION ALL
    SELECT by_key.key, NULL::timestamptz, by_key.queues, by_key.retention, by_key.completed,
           by_key.eviction, by_key.events
      FROM by_key
    UNION ALL
    SELECT NULL::text, NULL::timestamptz, NULL::bigint,
           coalesce(sum(by_bucket.retention), 0)::bigint,
           coalesce(sum(by_bucket.completed), 0)::bigint,
           coalesce(sum(by_bucket.eviction), 0)::bigint,
           coalesce(sum(by_bucket.events), 0)::bigint
      FROM by_bucket;
END;
$$;
