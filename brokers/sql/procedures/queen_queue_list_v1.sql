-- queen_queue_list_v1: every queue of a tenant with its figures as they were last counted.
--
-- Called by  brokers/store/management_calls.py, queue_list()
-- Reads      queen_queue, queen_queue_statistics; for a queue that was not counted or measured
--            yet what queen_queue_figures_v1 and queen_segment_figures_v1 read
-- Locks      nothing
-- Cost       two probes a queue that was counted; else a pass over its partitions, and at most
--            p_segments_max segments.
-- Answers    one row a queue, by name. Segments and bytes are estimates for queues with more
--            segments than were looked at.

CREATE OR REPLACE FUNCTION queen_queue_list_v1(p_tenant_id uuid, p_segments_max integer)
RETURNS TABLE (
    uid uuid, name text, namespace text, task text, created_at timestamptz,
    partitions bigint, total bigint, pending bigint, processing bigint,
    segments bigint, bytes bigint, paused boolean
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT queue.uid, queue.name, queue.namespace, queue.task, queue.created_at,
           sums.partitions, sums.total, sums.pending, sums.processing,
           stored.segments, stored.bytes, queue.paused
      FROM queen_queue queue
      LEFT JOIN queen_queue_statistics known ON known.queue_id = queue.id
     CROSS JOIN LATERAL (
        SELECT known.partitions, known.total, known.pending, known.processing
         WHERE known.queue_id IS NOT NULL
        UNION ALL
        SELECT fresh.partitions, fresh.total, fresh.pending, fresh.processing
          FROM queen_queue_figures_v1(queue.id) AS fresh
         WHERE known.queue_id IS NULL
     ) AS sums
     CROSS JOIN LATERAL (
        SELECT known.segments, known.bytes
         WHERE known.bytes_at IS NOT NULL
        UNION ALL
        SELECT fresh.segments, fresh.bytes
          FROM queen_segment_figures_v1(queue.id, sums.total, p_segments_max) AS fresh
         WHERE known.bytes_at IS NULL
     ) AS stored
     WHERE queue.tenant_id = p_tenant_id
     ORDER BY queue.name;
END;
$$;
