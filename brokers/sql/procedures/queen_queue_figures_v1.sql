-- queen_queue_figures_v1: the sums over all partitions of one queue.
--
-- Called by  queen_statistics_step_v1, and queen_queue_list_v1 for queues not yet counted
-- Reads      queen_group, queen_partition, queen_cursor, queen_dead_letter
-- Locks      nothing
-- Cost       one pass over the queue's partitions, its cursors and its dead letters, each
--            joined as a whole where there are many.
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
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET jit = off
SET work_mem = '16MB'
AS $$
#variable_conflict use_column
DECLARE
    v_now    timestamptz := clock_timestamp();
    v_groups bigint;
BEGIN
    SELECT count(*) INTO v_groups FROM queen_group WHERE queue_id = p_queue_id;
    RETURN QUERY
    SELECT count(*), coalesce(sum(figures.total), 0)::bigint,
           coalesce(sum(figures.pending), 0)::bigint,
           coalesce(sum(least(figures.leased, figures.pending)), 0)::bigint,
           coalesce(sum(greatest(figures.total - figures.pending - figures.dead, 0)), 0)::bigint,
           coalesce(sum(figures.dead), 0)::bigint
      FROM (
        SELECT lane.last_offset - lane.log_start + 1 AS total,
               greatest(lane.last_offset
                        - greatest(CASE WHEN reach.groups = v_groups THEN reach.slowest
                                        ELSE -1 END, lane.log_start - 1), 0) AS pending,
               coalesce(greatest(reach.leased, 0), 0) AS leased,
               coalesce(letters.dead, 0) AS dead
          FROM queen_partition lane
          LEFT JOIN (
            SELECT place.partition_id, count(*) AS groups, min(place.committed) AS slowest,
                   max(place.batch_end - greatest(place.committed, own.log_start - 1))
                       FILTER (WHERE place.lease_expires_at > v_now) AS leased
              FROM queen_partition own
              JOIN queen_cursor place ON place.partition_id = own.id
              JOIN queen_group registered
                ON registered.queue_id = own.queue_id
               AND registered.consumer_group = place.consumer_group
             WHERE own.queue_id = p_queue_id
             GROUP BY place.partition_id
          ) AS reach ON reach.partition_id = lane.id
          LEFT JOIN (
            SELECT letter.partition_id, count(*) AS dead
              FROM queen_partition own
              JOIN queen_dead_letter letter ON letter.partition_id = own.id
             WHERE own.queue_id = p_queue_id
             GROUP BY letter.partition_id
          ) AS letters ON letters.partition_id = lane.id
         WHERE lane.queue_id = p_queue_id
      ) AS figures;
END;
$$;
