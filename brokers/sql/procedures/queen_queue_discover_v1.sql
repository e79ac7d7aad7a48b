-- queen_queue_discover_v1: the queues that a discovery pop looks at.
--
-- Called by  brokers/store/calls.py, queue_discover()
-- Reads      queen_queue
-- Locks      nothing
-- Cost       one walk over the tenant's queues.
-- Answers    queues whose namespace and task are the given ones; '' matches any.

CREATE OR REPLACE FUNCTION queen_queue_discover_v1(
    p_tenant_id uuid, p_namespace text, p_task text
)
RETURNS SETOF queen_queue
LANGUAGE sql
STABLE
SET enable_seqscan = off
AS $$
    SELECT queue.*
      FROM queen_queue queue
     WHERE queue.tenant_id = p_tenant_id
       AND (p_namespace = '' OR queue.namespace = p_namespace)
       AND (p_task = '' OR queue.task = p_task)
     ORDER BY queue.id
$$;
