-- queen_group_target_v1: the partitions that a seek is about.
--
-- Called by  brokers/store/group_calls.py, group_target()
-- Reads      queen_queue, queen_partition
-- Locks      nothing
-- Cost       one pass over the queue's partitions, or one probe for a named one.
-- Answers    one row: the queue's id, and the ids of its partitions in ascending order; no row
--            when there is no such queue, or no such partition in it.

CREATE OR REPLACE FUNCTION queen_group_target_v1(p_tenant_id uuid, p_name text, p_partition text)
RETURNS TABLE (queue_id bigint, partition_ids bigint[])
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
#variable_conflict use_column
BEGIN
    IF p_partition IS NULL THEN
        RETURN QUERY
        SELECT queue.id, array_agg(lane.id ORDER BY lane.id)
          FROM queen_queue queue
          JOIN queen_partition lane ON lane.queue_id = queue.id
         WHERE queue.tenant_id = p_tenant_id AND queue.name = p_name
         GROUP BY queue.id;
    ELSE
        RETURN QUERY
        SELECT queue.id, ARRAY[lane.id]
          FROM queen_queue queue
          JOIN queen_partition lane ON lane.queue_id = queue.id AND lane.name = p_partition
         WHERE queue.tenant_id = p_tenant_id AND queue.name = p_name;
    END IF;
END;
$$;
