-- queen_retention_series_v1: what retention deleted over time.
--
-- Called by  brokers/store/history_calls.py, retention_series()
-- Reads      queen_retention_history, queen_queue
-- Locks      nothing
-- Cost       grows with the minutes of the window in which something was deleted, of all queues.
-- Answers    one row for each bucket that has any, by time (null key); one for each of the p_keys_max
--            keys with most (null bucket), unless p_by is empty; at last one for the whole window
--            (both null). A queue that is gone is in the sums and under no key.

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
    RETURN QUERY
    WITH kept AS MATERIALIZED (
        SELECT history.queue_id, history.retention_messages, history.completed_messages,
               history.eviction_messages, history.events,
               queen_bucket_v1(history.bucket, p_minutes) AS bucket,
               CASE p_by WHEN 'queue' THEN queue.name
                         WHEN 'namespace' THEN queue.namespace
                         WHEN 'task' THEN queue.task END AS key
          FROM queen_retention_history history
          LEFT JOIN queen_queue queue ON queue.id = history.queue_id
         WHERE history.bucket >= queen_bucket_v1(p_from, p_minutes) AND history.bucket < p_to
           AND history.tenant_id = p_tenant_id
           AND (p_queue IS NULL OR queue.name = p_queue)
    ), summed AS (
        SELECT kept.key, kept.bucket, grouping(kept.key) AS all_keys,
               grouping(kept.bucket) AS all_buckets, count(DISTINCT kept.queue_id) AS queues,
               coalesce(sum(kept.retention_messages), 0)::bigint AS retention,
               coalesce(sum(kept.completed_messages), 0)::bigint AS completed,
               coalesce(sum(kept.eviction_messages), 0)::bigint AS eviction,
               coalesce(sum(kept.events), 0)::bigint AS events
          FROM kept
         GROUP BY GROUPING SETS ((kept.bucket), (kept.key), ())
    ), numbered AS (
        SELECT summed.*,
               row_number() OVER (
                   PARTITION BY all_keys, all_buckets
                   ORDER BY summed.retention + summed.completed + summed.eviction DESC,
                            summed.key) AS no
          FROM summed
    )
    SELECT numbered.key, numbered.bucket, numbered.queues, numbered.retention,
           numbered.completed, numbered.eviction, numbered.events
      FROM numbered
     WHERE all_keys = 1 OR (numbered.key IS NOT NULL AND numbered.no <= p_keys_max)
     ORDER BY all_buckets, numbered.bucket, all_keys, numbered.no;
END;
$$;
