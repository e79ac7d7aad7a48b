-- queen_tenant_split_v1: what a tenant's namespaces, or its tasks, hold as last counted.
--
-- Called by  brokers/store/status_calls.py, tenant_split()
-- Reads      queen_queue, queen_queue_statistics
-- Locks      nothing
-- Cost       one probe a queue.
-- Answers    p_limit rows from p_offset, by name. Queues without one are under no name.

CREATE OR REPLACE FUNCTION queen_tenant_split_v1(
    p_tenant_id uuid,
    p_by_task   boolean,
    p_limit     integer,
    p_offset    bigint
)
RETURNS TABLE (name text, queues bigint, partitions bigint, total bigint, pending bigint)
LANGUAGE sql
STABLE
SET enable_seqscan = off
AS $$
    SELECT held.name, count(*), coalesce(sum(known.partitions), 0)::bigint,
           coalesce(sum(known.total), 0)::bigint, coalesce(sum(known.pending), 0)::bigint
      FROM (
        SELECT queue.id, CASE WHEN p_by_task THEN queue.task ELSE queue.namespace END AS name
          FROM queen_queue queue
         WHERE queue.tenant_id = p_tenant_id
      ) AS held
      LEFT JOIN queen_queue_statistics known ON known.queue_id = held.id
     WHERE held.name <> ''
     GROUP BY held.name
     ORDER BY held.name
     LIMIT p_limit OFFSET p_offset
$$;
