-- queen_partition_find_v1: the ids of partitions by name; creates nothing.
--
-- Called by  brokers/store/calls.py, partition_find()
-- Reads      queen_partition
-- Cost       one index probe a name.
-- Answers    (number as asked from 1, id) of those that exist.

CREATE OR REPLACE FUNCTION queen_partition_find_v1(p_queue_ids bigint[], p_names text[])
RETURNS TABLE (name_no integer, partition_id bigint)
LANGUAGE sql
STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
    SELECT asked.no::integer, lane.id
      FROM unnest(p_queue_ids, p_names) WITH ORDINALITY AS asked(queue_id, name, no)
      JOIN queen_partition lane ON lane.queue_id = asked.queue_id AND lane.name = asked.name
$$;
