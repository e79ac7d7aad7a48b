-- queen_partition_queues_v1: the queues that some partitions of a tenant belong to.
--
-- Called by  brokers/store/api_key_calls.py, partition_queues()
-- Reads      queen_partition, queen_queue
-- Cost       two index probes an id
-- Answers    each name once

CREATE OR REPLACE FUNCTION queen_partition_queues_v1(p_tenant_id uuid, p_partition_uids uuid[])
RETURNS TABLE (queue text)
LANGUAGE sql
STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
    SELECT DISTINCT queue.name
      FROM unnest(p_partition_uids) AS asked(uid)
      JOIN queen_partition lane ON lane.uid = asked.uid
     CROSS JOIN LATERAL (
        SELECT held.name
          FROM queen_queue held
         WHERE held.id = lane.queue_id AND held.tenant_id = p_tenant_id
         LIMIT 1
     ) AS queue
$$;
