-- queen_partition_liveness_v1: in which of a tenant's queues partitions are written, and since when.
--
-- Called by  brokers/store/status_calls.py, partition_liveness()
-- Reads      queen_queue, queen_queue_statistics
-- Locks      nothing
-- Cost       one probe a queue.
-- Answers    p_limit rows as last counted, those with most partitions first. An empty name asks for
--            queues without one.

CREATE OR REPLACE FUNCTION queen_partition_liveness_v1(
    p_tenant_id uuid,
    p_queue     text,
    p_namespace text,
    p_task      text,
    p_limit     integer
)
RETURNS TABLE (
    name text, namespace text, task text, partitions bigint, written_1h bigint,
    written_24h bigint, written_7d bigint, created_24h bigint, oldest_write_at timestamptz,
    newest_write_at timestamptz, pending bigint
)
LANGUAGE sql
STABLE
SET enable_seqscan = off
AS $$
    SELECT queue.name, queue.namespace, queue.task, coalesce(known.partitions, 0),
           coalesce(known.written_1h, 0), coalesce(known.written_24h, 0),
           coalesce(known.written_7d, 0), coalesce(known.created_24h, 0),
           known.oldest_write_at, known.newest_write_at, coalesce(known.pending, 0)
      FROM queen_queue queue
      LEFT JOIN queen_queue_statistics known ON known.queue_id = queue.id
     WHERE queue.tenant_id = p_tenant_id
       AND (p_queue IS NULL OR queue.name = p_queue)
       AND (p_namespace IS NULL OR queue.namespace = p_namespace)
       AND (p_task IS NULL OR queue.task = p_task)
     ORDER BY coalesce(known.partitions, 0) DESC, queue.name
     LIMIT p_limit
$$;
