-- queen_queue_inspect_v1: one queue as it is now, and a page of its partitions with their cursors.
--
-- Called by  brokers/store/status_calls.py, queue_inspect()
-- Reads      queen_queue, queen_group, queen_partition, queen_cursor, and what
--            queen_partition_letters_v1 reads
-- Locks      nothing
-- Cost       one pass over the queue's partitions, with a cursor probe for each group and at most
--            1001 of its dead letters; for those of the page also their cursors.
-- Answers    one row, or none when there is no such queue. `options` is the queue's row; `totals` are
--            partitions, total, pending, processing, completed and dead letters, over all partitions;
--            `partitions` is the JSON array that the answer carries, as text: p_limit from p_offset,
--            by name. `committed` is that of the slowest group, `lastActivity` the latest lease.

CREATE OR REPLACE FUNCTION queen_queue_inspect_v1(
    p_tenant_id uuid,
    p_name      text,
    p_limit     integer,
    p_offset    bigint
)
RETURNS TABLE (options jsonb, created_at timestamptz, totals bigint[], partitions text)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
SET timezone = 'UTC'
AS $$
#variable_conflict use_column
DECLARE
    v_time constant text := 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"';
    v_now  constant timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    SELECT to_jsonb(queue), queue.created_at,
           ARRAY[sums.partitions, sums.total, sums.pending, sums.processing, sums.completed,
                 sums.dead_letters],
           coalesce(listed.partitions, '[]')
      FROM queen_queue queue
     CROSS JOIN LATERAL queen_queue_figures_v1(queue.id) AS sums
     CROSS JOIN LATERAL (
        SELECT '[' || string_agg(json_build_object(
                   'id', lane.uid, 'name', lane.name,
                   'createdAt', to_char(lane.created_at, v_time),
                   'messages', json_build_object(
                       'total', reach.total, 'pending', reach.pending,
                       'processing', least(reach.processing, reach.pending),
                       'completed',
                       greatest(reach.total - reach.pending - letters.dead, 0),
                       'failed', NULL, 'deadLetter', letters.dead),
                   'stats', json_build_object(
                       'total', reach.total, 'pending', reach.pending,
                       'processing', least(reach.processing, reach.pending),
                       'completed',
                       greatest(reach.total - reach.pending - letters.dead, 0),
                       'failed', NULL, 'deadLetter', letters.dead),
                   'cursor', json_build_object(
                       'committed', reach.committed, 'lastOffset', lane.last_offset,
                       'logStart', lane.log_start, 'totalConsumed', reach.consumed,
                       'batchesConsumed', 0),
                   'lastActivity', to_char(reach.leased_at, v_time),
                   'oldestMessage', to_char(lane.oldest_live_at, v_time),
                   'newestMessage', CASE WHEN reach.total > 0
                                         THEN to_char(lane.last_created_at, v_time) END
               )::text, ',' ORDER BY lane.name) || ']' AS partitions
          FROM (
            SELECT paged.*
              FROM queen_partition paged
             WHERE paged.queue_id = queue.id
             ORDER BY paged.name
             LIMIT p_limit OFFSET p_offset
          ) AS lane
         CROSS JOIN LATERAL (
            SELECT lane.last_offset - lane.log_start + 1 AS total,
                   min(coalesce(place.committed, -1)) AS committed,
                   greatest(lane.last_offset
                            - greatest(min(coalesce(place.committed, -1)), lane.log_start - 1),
                            0) AS pending,
                   coalesce(max(greatest(
                       place.batch_end - greatest(place.committed, lane.log_start - 1), 0))
                       FILTER (WHERE place.lease_expires_at > v_now), 0) AS processing,
                   coalesce(sum(place.total_consumed), 0)::bigint AS consumed,
                   max(place.leased_at) AS leased_at
              FROM queen_group registered
              LEFT JOIN queen_cursor place
                     ON place.partition_id = lane.id
                    AND place.consumer_group = registered.consumer_group
             WHERE registered.queue_id = queue.id
         ) AS reach
         CROSS JOIN LATERAL queen_partition_letters_v1(queue.id, lane.id) AS letters
     ) AS listed
     WHERE queue.tenant_id = p_tenant_id AND queue.name = p_name;
END;
$$;
