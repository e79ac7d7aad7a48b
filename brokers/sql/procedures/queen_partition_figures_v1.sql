-- queen_partition_figures_v1: how much lies in each partition of a queue, and how much waits.
--
-- Called by  queen_queue_figures_v1, queen_queue_describe_v1, queen_queue_depth_v1
-- Reads      queen_partition, queen_group, queen_cursor
-- Locks      nothing
-- Cost       one cursor probe a partition and group.
-- Answers    one row a partition, in no order:
--              total       messages retained
--              pending     those beyond the cursor of p_group; without one, beyond the
--                          slowest registered group, and all of them where there is no group
--              processing  the longest span under a live lease, at most pending; a lease on
--                          what retention has taken since spans nothing
--
-- A registered group without a cursor has consumed nothing. The body has no SET clauses so
-- that it becomes a part of its caller's statement.

CREATE OR REPLACE FUNCTION queen_partition_figures_v1(p_queue_id bigint, p_group text)
RETURNS TABLE (
    partition_id bigint, uid uuid, name text, created_at timestamptz,
    oldest_live_at timestamptz, last_created_at timestamptz,
    total bigint, pending bigint, processing bigint
)
LANGUAGE sql
STABLE
AS $$
    SELECT lane.id, lane.uid, lane.name, lane.created_at, lane.oldest_live_at,
           lane.last_created_at, lane.last_offset - lane.log_start + 1,
           reach.pending, least(greatest(reach.leased, 0), reach.pending)
      FROM queen_partition lane
     CROSS JOIN LATERAL (
        SELECT greatest(lane.last_offset - greatest(min(coalesce(place.committed, -1)),
                                                    lane.log_start - 1), 0) AS pending,
               coalesce(max(place.batch_end - greatest(place.committed, lane.log_start - 1))
                            FILTER (WHERE place.lease_expires_at > clock_timestamp()),
                        0) AS leased
          FROM (
            SELECT registered.consumer_group
              FROM queen_group registered
             WHERE registered.queue_id = p_queue_id AND p_group IS NULL
            UNION ALL
            SELECT p_group COLLATE "C" WHERE p_group IS NOT NULL
          ) AS asked(consumer_group)
          LEFT JOIN queen_cursor place
                 ON place.partition_id = lane.id
                AND place.consumer_group = asked.consumer_group
      ) AS reach
     WHERE lane.queue_id = p_queue_id
$$;
