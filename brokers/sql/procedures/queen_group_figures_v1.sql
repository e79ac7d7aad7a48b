-- queen_group_figures_v1: the sums over all partitions of one queue, for each of its groups.
--
-- Called by  queen_statistics_step_v1, and queen_group_list_v1 for groups not yet counted
-- Reads      queen_group, queen_partition, queen_cursor, queen_segment
-- Locks      nothing
-- Cost       one pass over the queue's partitions for each group, with a cursor probe, and one
--            of its segments where the group lags.
-- Answers    one row a group, p_group alone if it is given:
--              cursors   partitions that it has a cursor in
--              lagging   partitions in which it has not consumed all
--              lag       messages that it has not consumed
--              consumed  whether it ever consumed any
--              oldest_at when the oldest of them was stored; null without
--              oldest    the partitions where that is oldest, at most a hundred

CREATE OR REPLACE FUNCTION queen_group_figures_v1(p_queue_id bigint, p_group text)
RETURNS TABLE (
    consumer_group text, cursors bigint, lagging bigint, lag bigint, consumed boolean,
    oldest_at timestamptz, oldest bigint[]
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
BEGIN
    RETURN QUERY
    SELECT registered.consumer_group, sums.cursors, sums.lagging, sums.lag, sums.consumed,
           sums.oldest_at, coalesce(sums.oldest, '{}')
      FROM queen_group registered
     CROSS JOIN LATERAL (
        SELECT count(place.partition_id) AS cursors,
               count(*) FILTER (WHERE reach.lag > 0) AS lagging,
               coalesce(sum(reach.lag), 0)::bigint AS lag,
               coalesce(bool_or(place.total_consumed > 0), false) AS consumed,
               min(first.at) AS oldest_at,
               (array_agg(lane.id ORDER BY first.at) FILTER (WHERE first.at IS NOT NULL))[1:100]
                   AS oldest
          FROM queen_partition lane
          LEFT JOIN LATERAL (
            SELECT held.partition_id, held.committed, held.total_consumed
              FROM queen_cursor held
             WHERE held.partition_id = lane.id
               AND held.consumer_group = registered.consumer_group
             LIMIT 1
         ) AS place ON true
         CROSS JOIN LATERAL queen_group_place_v1(
                 lane.last_offset, lane.log_start, lane.last_created_at, place.committed,
                 registered.start_at) AS reach
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
         WHERE lane.queue_id = p_queue_id
      ) AS sums
     WHERE registered.queue_id = p_queue_id
       AND (p_group IS NULL OR registered.consumer_group = p_group);
END;
$$;
