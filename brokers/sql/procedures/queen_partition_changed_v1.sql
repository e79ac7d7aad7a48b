-- queen_partition_changed_v1: the partitions of a queue, all of them or those written since.
--
-- Called by  brokers/store/status_calls.py, partition_changed()
-- Reads      queen_queue, queen_partition
-- Locks      nothing
-- Cost       p_limit rows of an index.
-- Answers    without p_since by name, else by the stamp of the last write and name, behind p_after
--            (a stamp and a name); one row with a null name when there is such a queue and nothing
--            more in it; none when there is no such queue.
--
-- The stamp moves at most once a second, so it may be a second older than the write.

CREATE OR REPLACE FUNCTION queen_partition_changed_v1(
    p_tenant_id  uuid,
    p_queue      text,
    p_since      timestamptz,
    p_after_at   timestamptz,
    p_after_name text,
    p_limit      integer
)
RETURNS TABLE (name text, last_offset bigint, log_start bigint, last_write_at timestamptz)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_queue_id bigint;
BEGIN
    SELECT id INTO v_queue_id
      FROM queen_queue
     WHERE tenant_id = p_tenant_id AND name = p_queue;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF p_since IS NULL THEN
        RETURN QUERY
        SELECT lane.name, lane.last_offset, lane.log_start, lane.last_write_at
          FROM queen_partition lane
         WHERE lane.queue_id = v_queue_id
           AND (p_after_name IS NULL OR lane.name > p_after_name)
         ORDER BY lane.name
         LIMIT p_limit;
    ELSE
        RETURN QUERY
        SELECT lane.name, lane.last_offset, lane.log_start, lane.last_write_at
          FROM queen_partition lane
         WHERE lane.queue_id = v_queue_id
           AND lane.last_write_at >= greatest(p_since, p_after_at)
           AND (p_after_at IS NULL OR lane.last_write_at > p_after_at
                OR lane.name > p_after_name)
         ORDER BY lane.last_write_at, lane.name
         LIMIT p_limit;
    END IF;
    IF NOT FOUND THEN
        RETURN NEXT;
    END IF;
END;
$$;
