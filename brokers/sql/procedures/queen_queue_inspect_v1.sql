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
    -- One pass: the totals are over all partitions, what is written of one is written for the page.
    RETURN QUERY
    SELECT to_jsonb(queue), queue.created_at, listed.totals, coalesce(listed.partitions, '[]')
      FROM queen_queue queue
     CROSS JOIN LATERAL (
        SELECT ARRAY[count(*), coalesce(sum(lane.total), 0)::bigint,
                     coalesce(sum(lane.pending), 0)::bigint,
                     coalesce(sum(lane.processing), 0)::bigint,
                     coalesce(sum(lane.completed), 0)::bigint,
                     coalesce(sum(lane.dead), 0)::bigint] AS totals,
               '[' || string_agg(json_build_object(
                   'id', lane.uid, 'name', lane.name,
                   'createdAt', to_char(lane.created_at, v_time),
                   'messages', json_build_object(
                       'total', lane.total, 'pending', lane.pending,
                       'processing', lane.processing, 'completed', lane.completed,
                       'failed', NULL, 'deadLetter', lane.dead),
                   'stats', json_build_object(
                       'total', lane.total, 'pending', lane.pending,
                       'processing', lane.processing, 'completed', lane.completed,
                       'failed', NULL, 'deadLetter', lane.dead),
                   'cursor', json_build_object(
                       'committed', lane.committed, 'lastOffset', lane.last_offset,
                       'logStart', lane.log_start, 'totalConsumed', lane.consumed,
                       'batchesConsumed', 0),
                   'lastActivity', to_char(lane.leased_at, v_time),
                   'oldestMessage', to_char(lane.oldest_live_at, v_time),
                   'newestMessage', CASE WHEN lane.total > 0
                                         THEN to_char(lane.last_created_at, v_time) END
               )::text, ',' ORDER BY lane.no)
                   FILTER (WHERE lane.no > p_offset AND lane.no <= p_offset + p_limit)
               || ']' AS partitions
          FROM (
            SELECT held.*, reach.total, reach.committed, reach.pending, reach.consumed,
                   reach.leased_at, least(reach.leased, reach.pending) AS processing,
                   greatest(reach.total - reach.pending - letters.dead, 0) AS completed,
                   letters.dead, row_number() OVER (ORDER BY held.name) AS no
              FROM queen_partition held
             CROSS JOIN LATERAL (
                SELECT held.last_offset - held.log_start + 1 AS total,
                       min(coalesce(place.committed, -1)) AS committed,
                       greatest(held.last_offset
                                - greatest(min(coalesce(place.committed, -1)),
                                           held.log_start - 1), 0) AS pending,
                       coalesce(max(greatest(
                           place.batch_end - greatest(place.committed, held.log_start - 1), 0))
                           FILTER (WHERE place.lease_expires_at > v_now), 0) AS leased,
                       coalesce(sum(place.total_consumed), 0)::bigint AS consumed,
                       max(place.leased_at) AS leased_at
                  FROM queen_group registered
                  LEFT JOIN queen_cursor place
                         ON place.partition_id = held.id
                        AND place.consumer_group = registered.consumer_group
                 WHERE registered.queue_id = queue.id
             ) AS reach
             CROSS JOIN LATERAL queen_partition_letters_v1(queue.id, held.id) AS letters
             WHERE held.queue_id = queue.id
          ) AS lane
     ) AS listed
     WHERE queue.tenant_id = p_tenant_id AND queue.name = p_name;
END;
$$;
