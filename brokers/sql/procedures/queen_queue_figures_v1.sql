-- queen_queue_figures_v1: the sums over all partitions of one queue.
--
-- Called by  queen_statistics_step_v1, queen_queue_inspect_v1, and queen_queue_list_v1 for queues
--            not yet counted
-- Reads      queen_group, queen_partition, queen_cursor, and what queen_partition_letters_v1 reads
-- Locks      nothing
-- Cost       one pass over the queue's partitions, with a cursor probe for each group and at
--            most 1001 dead letters. Joined as wholes they would cost half as much, and minutes
--            under a plan that was made while the tables had no statistics.
-- Answers    one row. The figures of a partition are those of queen_partition_figures_v1:
--            pending is what lies beyond the slowest registered group; completed is total less
--            pending less dead letters, at least zero.

CREATE OR REPLACE FUNCTION queen_queue_figures_v1(p_queue_id bigint)
RETURNS TABLE (
    partitions bigint, total bigint, pending bigint, processing bigint, completed bigint,
    dead_letters bigint
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
    SELECT count(*), coalesce(sum(lane.total), 0)::bigint,
           coalesce(sum(lane.pending), 0)::bigint, coalesce(sum(lane.processing), 0)::bigint,
           coalesce(sum(greatest(lane.total - lane.pending - letters.dead, 0)), 0)::bigint,
           coalesce(sum(letters.dead), 0)::bigint
      FROM queen_partition_figures_v1(p_queue_id, NULL) AS lane
     CROSS JOIN LATERAL queen_partition_letters_v1(p_queue_id, lane.partition_id) AS letters;
END;
$$;
