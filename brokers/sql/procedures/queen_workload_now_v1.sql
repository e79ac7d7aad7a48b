-- queen_workload_now_v1: what lies in a tenant's queues now, by queue, namespace or task.
--
-- Called by  brokers/store/history_calls.py, workload_now()
-- Reads      queen_queue, queen_queue_statistics, queen_group, queen_queue_counter
-- Locks      nothing
-- Cost       one probe a queue, and the kept buckets of the window of all queues.
-- Answers    one row a key; for an empty p_by one for all. Figures are as last counted. namespace and task are those of one of the key's queues.
--              touched   queues for which the window has anything, active: for which it has a push
--                        or a delivery

CREATE OR REPLACE FUNCTION queen_workload_now_v1(
    p_tenant_id uuid,
    p_by        text,
    p_queue     text,
    p_namespace text,
    p_task      text,
    p_from      timestamptz,
    p_to        timestamptz,
    p_minutes   integer
)
RETURNS TABLE (
    key text, namespace text, task text, queues bigint, pending bigint, processing bigint,
    dead_letters bigint, bytes bigint, partitions bigint, groups bigint,
    queues_without_group bigint, pending_without_group bigint, touched bigint, active bigint
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_nestloop = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_span smallint := queen_history_span_v1(p_minutes);
BEGIN
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT queue.id, queue.namespace, queue.task,
               CASE p_by WHEN 'queue' THEN queue.name
                         WHEN 'namespace' THEN queue.namespace
                         WHEN 'task' THEN queue.task
                         ELSE '' END AS key
          FROM queen_queue queue
         WHERE queue.tenant_id = p_tenant_id
           AND (p_queue IS NULL OR queue.name = p_queue)
           AND (p_namespace IS NULL OR queue.namespace = p_namespace)
           AND (p_task IS NULL OR queue.task = p_task)
    ), seen AS MATERIALIZED (
        SELECT kept.queue_id, bool_or(kept.push_messages + kept.pop_messages > 0) AS active
          FROM queen_queue_counter kept
         WHERE kept.span = v_span AND kept.bucket >= queen_bucket_v1(p_from, p_minutes)
           AND kept.bucket < p_to
         GROUP BY kept.queue_id
    ), subscribed AS MATERIALIZED (
        SELECT asked.id, count(*) AS groups
          FROM asked
          JOIN queen_group registered ON registered.queue_id = asked.id
         GROUP BY asked.id
    )
    SELECT asked.key, min(asked.namespace), min(asked.task), count(*),
           coalesce(sum(known.pending), 0)::bigint,
           coalesce(sum(known.processing), 0)::bigint,
           coalesce(sum(known.dead_letters), 0)::bigint,
           coalesce(sum(known.bytes), 0)::bigint,
           coalesce(sum(known.partitions), 0)::bigint,
           coalesce(sum(subscribed.groups), 0)::bigint,
           count(*) FILTER (WHERE subscribed.id IS NULL),
           coalesce(sum(known.pending) FILTER (WHERE subscribed.id IS NULL), 0)::bigint,
           count(seen.queue_id), count(*) FILTER (WHERE seen.active)
      FROM asked
      LEFT JOIN queen_queue_statistics known ON known.queue_id = asked.id
      LEFT JOIN seen ON seen.queue_id = asked.id
      LEFT JOIN subscribed ON subscribed.id = asked.id
     GROUP BY asked.key;
END;
$$;
