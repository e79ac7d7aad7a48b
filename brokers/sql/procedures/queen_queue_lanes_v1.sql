-- queen_queue_lanes_v1: how many partitions some queues of a tenant have.
--
-- Called by  brokers/store/status_calls.py, queue_lanes()
-- Reads      queen_queue, queen_queue_statistics; queen_partition for a queue that was not counted yet
-- Locks      nothing
-- Cost       two probes a queue; one that was not counted yet a pass over its partitions
-- Answers    one row a queue that is there

CREATE OR REPLACE FUNCTION queen_queue_lanes_v1(p_tenant_id uuid, p_names text[])
RETURNS TABLE (name text, partitions bigint)
LANGUAGE sql
STABLE
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
    SELECT queue.name,
           coalesce(known.partitions, (SELECT count(*) FROM queen_partition lane
                                        WHERE lane.queue_id = queue.id))
      FROM unnest(p_names) AS asked(name)
     CROSS JOIN LATERAL (
        SELECT held.id, held.name
          FROM queen_queue held
         WHERE held.tenant_id = p_tenant_id AND held.name = asked.name
         LIMIT 1
     ) AS queue
      LEFT JOIN queen_queue_statistics known ON known.queue_id = queue.id
$$;
