-- queen_queue_page_v1: a page of a tenant's queues with their figures as last counted.
--
-- Called by  brokers/store/status_calls.py, queue_page()
-- Reads      queen_queue, queen_queue_statistics; for a queue that was not counted yet what
--            queen_queue_figures_v1 reads
-- Locks      nothing
-- Cost       two probes a queue of the page; one that was not counted yet a pass over its partitions.
-- Answers    p_limit rows from p_offset, by name.

CREATE OR REPLACE FUNCTION queen_queue_page_v1(
    p_tenant_id uuid,
    p_queue     text,
    p_namespace text,
    p_task      text,
    p_limit     integer,
    p_offset    bigint
)
RETURNS TABLE (
    uid uuid, name text, namespace text, task text, created_at timestamptz, partitions bigint,
    total bigint, pending bigint, processing bigint, completed bigint, dead_letters bigint
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT page.uid, page.name, page.namespace, page.task, page.created_at, sums.partitions,
           sums.total, sums.pending, sums.processing, sums.completed, sums.dead_letters
      FROM (
        SELECT queue.*
          FROM queen_queue queue
         WHERE queue.tenant_id = p_tenant_id
           AND (p_queue IS NULL OR queue.name = p_queue)
           AND (p_namespace IS NULL OR queue.namespace = p_namespace)
           AND (p_task IS NULL OR queue.task = p_task)
         ORDER BY queue.name
         LIMIT p_limit OFFSET p_offset
      ) AS page
      LEFT JOIN queen_queue_statistics known ON known.queue_id = page.id
     CROSS JOIN LATERAL (
        SELECT known.partitions, known.total, known.pending, known.processing,
               known.completed, known.dead_letters
         WHERE known.queue_id IS NOT NULL
        UNION ALL
        SELECT fresh.partitions, fresh.total, fresh.pending, fresh.processing,
               fresh.completed, fresh.dead_letters
          FROM queen_queue_figures_v1(page.id) AS fresh
         WHERE known.queue_id IS NULL
     ) AS sums
     ORDER BY page.name;
END;
$$;
