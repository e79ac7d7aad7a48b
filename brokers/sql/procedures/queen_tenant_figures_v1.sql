-- queen_tenant_figures_v1: everything that a tenant has, as last counted, in one row.
--
-- Called by  brokers/store/status_calls.py, tenant_figures()
-- Reads      queen_queue, queen_queue_statistics, queen_group, queen_group_statistics,
--            queen_queue_counter
-- Locks      nothing
-- Cost       one probe a queue and one a group at a queue, and the minutes of the last five.
-- Answers    one row. p_tenant_id null: of all tenants.
--              lag_s, lag      [mean, median, least, greatest] over groups at queues: the age of the
--                              oldest message not consumed, and how many are not
--              pushed, acked   in the last five minutes
--              age_s           of the latest count; -1 when there is none

CREATE OR REPLACE FUNCTION queen_tenant_figures_v1(
    p_tenant_id uuid,
    p_queue     text,
    p_namespace text,
    p_task      text
)
RETURNS TABLE (
    queues bigint, partitions bigint, namespaces bigint, tasks bigint, total bigint,
    pending bigint, processing bigint, completed bigint, dead_letters bigint,
    dead_letter_queues bigint, lag_s double precision[], lag double precision[],
    pushed bigint, acked bigint, age_s bigint
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
    WITH asked AS MATERIALIZED (
        SELECT queue.id, queue.namespace, queue.task
          FROM queen_queue queue
         WHERE (p_tenant_id IS NULL OR queue.tenant_id = p_tenant_id)
           AND (p_queue IS NULL OR queue.name = p_queue)
           AND (p_namespace IS NULL OR queue.namespace = p_namespace)
           AND (p_task IS NULL OR queue.task = p_task)
    ), held AS (
        SELECT count(*) AS queues, coalesce(sum(known.partitions), 0)::bigint AS partitions,
               count(DISTINCT asked.namespace) FILTER (WHERE asked.namespace <> '') AS namespaces,
               count(DISTINCT asked.task) FILTER (WHERE asked.task <> '') AS tasks,
               coalesce(sum(known.total), 0)::bigint AS total,
               coalesce(sum(known.pending), 0)::bigint AS pending,
               coalesce(sum(known.processing), 0)::bigint AS processing,
               coalesce(sum(known.completed), 0)::bigint AS completed,
               coalesce(sum(known.dead_letters), 0)::bigint AS dead_letters,
               count(*) FILTER (WHERE known.dead_letters > 0) AS dead_letter_queues,
               CASE WHEN max(known.computed_at) IS NULL THEN -1
                    ELSE floor(greatest(extract(epoch FROM v_now - max(known.computed_at)), 0))
               END::bigint AS age_s
          FROM asked
          LEFT JOIN queen_queue_statistics known ON known.queue_id = asked.id
    ), behind AS (
        SELECT CASE WHEN count(*) = 0 THEN '{0,0,0,0}'
                    ELSE ARRAY[
                        avg(reach.lag_s),
                        percentile_cont(0.5) WITHIN GROUP (ORDER BY reach.lag_s),
                        min(reach.lag_s), max(reach.lag_s)]::double precision[]
               END AS lag_s,
               CASE WHEN count(*) = 0 THEN '{0,0,0,0}'
                    ELSE ARRAY[
                        avg(reach.lag),
                        percentile_cont(0.5) WITHIN GROUP (ORDER BY reach.lag),
                        min(reach.lag), max(reach.lag)]::double precision[]
               END AS lag
          FROM (
            SELECT known.lag,
                   coalesce(greatest(extract(epoch FROM v_now - known.oldest_at), 0), 0)
                       ::double precision AS lag_s
              FROM asked
              JOIN queen_group registered ON registered.queue_id = asked.id
              JOIN queen_group_statistics known
                ON known.queue_id = registered.queue_id
               AND known.consumer_group = registered.consumer_group
          ) AS reach
    ), moved AS (
        SELECT coalesce(sum(kept.push_messages), 0)::bigint AS pushed,
               coalesce(sum(kept.ack_success), 0)::bigint AS acked
          FROM queen_queue_counter kept
          JOIN asked ON asked.id = kept.queue_id
         WHERE kept.span = 1 AND kept.bucket > v_now - interval '5 minutes'
    )
    SELECT held.queues, held.partitions, held.namespaces, held.tasks, held.total, held.pending,
           held.processing, held.completed, held.dead_letters, held.dead_letter_queues,
           behind.lag_s, behind.lag, moved.pushed, moved.acked, held.age_s
      FROM held CROSS JOIN behind CROSS JOIN moved;
END;
$$;
