-- queen_partition_find_v1: the id of a partition by name, or null; creates nothing.
--
-- Called by  brokers/store/calls.py, partition_find()
-- Reads      queen_partition
-- Cost       one index probe.

CREATE OR REPLACE FUNCTION queen_partition_find_v1(p_queue_id bigint, p_name text)
RETURNS bigint
LANGUAGE sql
STABLE
SET enable_seqscan = off
AS $$
    SELECT lane.id FROM queen_partition lane WHERE lane.queue_id = p_queue_id AND lane.name = p_name
$$;
