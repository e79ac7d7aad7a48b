-- queen_group_queues_v1: the queues of a tenant that a group is subscribed to.
--
-- Called by  brokers/store/group_calls.py, group_queues()
-- Reads      queen_queue, queen_group
-- Locks      nothing
-- Cost       one probe a queue of the tenant.
-- Answers    one row a queue, by name; with p_queue only that one.

CREATE OR REPLACE FUNCTION queen_group_queues_v1(p_tenant_id uuid, p_group text, p_queue text)
RETURNS TABLE (queue_id bigint)
LANGUAGE sql
STABLE
SET enable_seqscan = off
AS $$
    SELECT queue.id
      FROM queen_queue queue
      JOIN queen_group registered
        ON registered.queue_id = queue.id AND registered.consumer_group = p_group
     WHERE queue.tenant_id = p_tenant_id AND (p_queue IS NULL OR queue.name = p_queue)
     ORDER BY queue.name
$$;
