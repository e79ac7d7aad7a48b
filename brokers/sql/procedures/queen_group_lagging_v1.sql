-- queen_group_lagging_v1: where groups have left messages lie for too long.
--
-- Called by  brokers/store/group_calls.py, group_lagging()
-- Reads      queen_queue, queen_group, queen_group_statistics, queen_partition, queen_cursor,
--            queen_segment
-- Locks      nothing
-- Cost       at most a hundred partitions of each group and queue that were found to lag when they
--            were last counted, until the page is full.
-- Answers    one row a group and partition that lags now, the oldest of the last count first.

CREATE OR REPLACE FUNCTION queen_group_lagging_v1(
    p_tenant_id uuid,
    p_lag_s     bigint,
    p_limit     integer,
    p_offset    bigint
)
RETURNS TABLE (
    consumer_group text, queue_name text, partition_name text, partition_uid uuid,
    lag bigint, oldest_at timestamptz, lag_s double precision
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
    v_now    timestamptz := clock_timestamp();
    v_before timestamptz := v_now - make_interval(secs => p_lag_s);
BEGIN
    RETURN QUERY
    SELECT suspect.consumer_group, suspect.name, lane.name, lane.uid, reach.lag, first.at,
           extract(epoch FROM v_now - first.at)::double precision
      FROM (
        SELECT known.oldest, known.oldest_at, registered.consumer_group, registered.start_at,
               queue.name, queue.id
          FROM queen_queue queue
          JOIN queen_group registered ON registered.queue_id = queue.id
          JOIN queen_group_statistics known
            ON known.queue_id = registered.queue_id
           AND known.consumer_group = registered.consumer_group
           AND known.computed_at >= registered.created_at
         WHERE queue.tenant_id = p_tenant_id AND known.oldest_at <= v_before
         ORDER BY known.oldest_at, queue.name, registered.consumer_group
      ) AS suspect
     CROSS JOIN LATERAL unnest(suspect.oldest) WITH ORDINALITY AS asked(partition_id, no)
      JOIN queen_partition lane ON lane.id = asked.partition_id
      LEFT JOIN LATERAL (
        SELECT held.committed
          FROM queen_cursor held
         WHERE held.partition_id = lane.id AND held.consumer_group = suspect.consumer_group
         LIMIT 1
     ) AS place ON true
     CROSS JOIN LATERAL queen_group_place_v1(
             lane.last_offset, lane.log_start, lane.last_created_at, place.committed,
             suspect.start_at) AS reach
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
     WHERE first.at <= v_before
     LIMIT p_limit OFFSET p_offset;
END;
$$;
