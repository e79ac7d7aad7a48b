-- queen_purge_lanes_v1: the partitions of a queue that hold messages, and up to which offset.
--
-- Called by  brokers/store/queue_calls.py, purge_lanes()
-- Reads      queen_queue, queen_partition
-- Locks      nothing
-- Cost       the partitions of the queue behind p_after, at most until p_limit were found.
-- Answers    in ascending id a row a partition that holds messages, at most p_limit; before
--            them one without a partition: the queue is there, and so is the partition that
--            p_partition names (null: all of them). No row: there is no such queue.
--
-- The offset is the end of the partition as it stands: what is pushed later is not purged.

CREATE OR REPLACE FUNCTION queen_purge_lanes_v1(
    p_tenant_id uuid,
    p_queue     text,
    p_partition text,
    p_after     bigint,
    p_limit     integer
)
RETURNS TABLE (queue_id bigint, partition_id bigint, last_offset bigint, found boolean)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_queue_id bigint;
BEGIN
    SELECT queue.id INTO v_queue_id
      FROM queen_queue queue
     WHERE queue.tenant_id = p_tenant_id AND queue.name = p_queue;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT v_queue_id, NULL::bigint, NULL::bigint,
           p_partition IS NULL OR EXISTS (
               SELECT FROM queen_partition lane
                WHERE lane.queue_id = v_queue_id AND lane.name = p_partition);
    RETURN QUERY
    SELECT v_queue_id, lane.id, lane.last_offset, true
      FROM queen_partition lane
     WHERE lane.queue_id = v_queue_id
       AND (p_partition IS NULL OR lane.name = p_partition)
       AND lane.id > p_after
       AND lane.last_offset >= lane.log_start
     ORDER BY lane.id
     LIMIT p_limit;
END;
$$;
