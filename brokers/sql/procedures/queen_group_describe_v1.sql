-- queen_group_describe_v1: how far a group has come, partition by partition.
--
-- Called by  brokers/store/group_calls.py, group_describe()
-- Reads      queen_queue, queen_group, queen_partition, queen_cursor, queen_segment
-- Locks      nothing
-- Cost       p_limit partitions, and a count of those that p_offset passes over.
-- Answers    one row a partition, by queue and name; for a queue without partitions one with a null
--            partition.

CREATE OR REPLACE FUNCTION queen_group_describe_v1(
    p_tenant_id uuid,
    p_group     text,
    p_limit     integer,
    p_offset    bigint
)
RETURNS TABLE (
    queue_name text, conflation boolean, partition_name text, consumed bigint, lag bigint,
    lag_s bigint, leased boolean
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_now   timestamptz := clock_timestamp();
    v_left  integer := p_limit;
    v_skip  bigint := p_offset;
    v_count bigint;
    v_met   record;
BEGIN
    FOR v_met IN
        SELECT queue.id, queue.name, registered.conflation, registered.start_at
          FROM queen_queue queue
          JOIN queen_group registered
            ON registered.queue_id = queue.id AND registered.consumer_group = p_group
         WHERE queue.tenant_id = p_tenant_id
         ORDER BY queue.name
    LOOP
        EXIT WHEN v_left <= 0;
        IF v_skip > 0 THEN
            SELECT count(*) INTO v_count FROM queen_partition WHERE queue_id = v_met.id;
            IF v_count <= v_skip THEN
                v_skip := v_skip - v_count;
                CONTINUE;
            END IF;
        END IF;
        RETURN QUERY
        SELECT v_met.name, v_met.conflation, lane.name, coalesce(place.total_consumed, 0),
               reach.lag,
               coalesce(greatest(extract(epoch FROM v_now - first.at), 0)::bigint, 0),
               coalesce(place.lease_expires_at > v_now, false)
          FROM (
            SELECT paged.*
              FROM queen_partition paged
             WHERE paged.queue_id = v_met.id
             ORDER BY paged.name
             LIMIT v_left OFFSET v_skip
          ) AS lane
          LEFT JOIN LATERAL (
            SELECT held.committed, held.total_consumed, held.lease_expires_at
              FROM queen_cursor held
             WHERE held.partition_id = lane.id AND held.consumer_group = p_group
             LIMIT 1
         ) AS place ON true
         CROSS JOIN LATERAL queen_group_place_v1(
                 lane.last_offset, lane.log_start, lane.last_created_at, place.committed,
                 v_met.start_at) AS reach
         CROSS JOIN LATERAL (
            -- What queen_created_at_v1 tells, without the cost of a call for each.
            SELECT CASE WHEN reach.lag = 0 THEN NULL
                        WHEN reach.done < lane.log_start THEN lane.oldest_live_at
                        ELSE (SELECT segment.created_at
                                FROM queen_segment segment
                               WHERE segment.partition_id = lane.id
                                 AND segment.base_offset <= reach.done + 1
                               ORDER BY segment.base_offset DESC
                               LIMIT 1) END AS at
         ) AS first
         ORDER BY lane.name;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_left := v_left - v_count::integer;
        v_skip := 0;
        IF v_count = 0 THEN
            queue_name := v_met.name;
            conflation := v_met.conflation;
            RETURN NEXT;
        END IF;
    END LOOP;
END;
$$;
