-- queen_queue_describe_v1: one queue: its options, its figures, and those of each partition.
--
-- Called by  brokers/store/management_calls.py, queue_describe()
-- Reads      queen_queue, queen_group, queen_partition, queen_cursor, queen_segment, and what
--            queen_partition_letters_v1 reads
-- Locks      nothing
-- Cost       one pass over the queue's partitions, with a cursor probe for each group and at most
--            1001 of its dead letters; at most p_segments_max segments.
-- Answers    one row, or none when there is no such queue. `options` is the queue's row.
--            `partitions` is the JSON array that the answer carries, already as text, so
--            that ten thousand of them cost the broker's loop one string: p_limit of them from
--            p_offset, by name. The totals are over all; `lanes` is how many there are.
--
-- completed = total - pending - dead letters, at least zero. `failed` has been null since
-- messages have no state of their own.

CREATE OR REPLACE FUNCTION queen_queue_describe_v1(
    p_tenant_id    uuid,
    p_name         text,
    p_limit        integer,
    p_offset       bigint,
    p_segments_max integer
)
RETURNS TABLE (
    options jsonb, created_at timestamptz, total bigint, pending bigint, processing bigint,
    completed bigint, dead_letters bigint, segments bigint, bytes bigint, lanes bigint,
    partitions text
)
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
BEGIN
    RETURN QUERY
    SELECT to_jsonb(queue), queue.created_at, sums.total, sums.pending, sums.processing,
           sums.completed, sums.dead_letters, stored.segments, stored.bytes,
           sums.lanes, coalesce(sums.partitions, '[]')
      FROM queen_queue queue
     CROSS JOIN LATERAL (
        SELECT coalesce(sum(lane.total), 0)::bigint AS total,
               coalesce(sum(lane.pending), 0)::bigint AS pending,
               coalesce(sum(lane.processing), 0)::bigint AS processing,
               coalesce(sum(lane.completed), 0)::bigint AS completed,
               coalesce(sum(lane.dead_letters), 0)::bigint AS dead_letters,
               count(*) AS lanes,
               '[' || string_agg(
                   json_build_object(
                       'id', lane.uid, 'name', lane.name,
                       'createdAt', to_char(lane.created_at, v_time),
                       'stats', json_build_object(
                           'total', lane.total, 'pending', lane.pending,
                           'processing', lane.processing, 'completed', lane.completed,
                           'failed', NULL, 'deadLetter', lane.dead_letters),
                       'oldestMessage', CASE WHEN lane.total > 0
                                             THEN to_char(lane.oldest_live_at, v_time) END,
                       'newestMessage', CASE WHEN lane.total > 0
                                             THEN to_char(lane.last_created_at, v_time) END
                   )::text, ',' ORDER BY lane.no)
                   FILTER (WHERE lane.no > p_offset AND lane.no <= p_offset + p_limit)
               || ']' AS partitions
          FROM (
            SELECT figures.*, letters.dead_letters,
                   greatest(figures.total - figures.pending - letters.dead_letters, 0)
                       AS completed,
                   row_number() OVER (ORDER BY figures.name) AS no
              FROM queen_partition_figures_v1(queue.id, NULL) AS figures
             CROSS JOIN LATERAL queen_partition_letters_v1(queue.id, figures.partition_id)
                     AS letters(dead_letters)
          ) AS lane
     ) AS sums
     CROSS JOIN LATERAL queen_segment_figures_v1(queue.id, sums.total, p_segments_max) AS stored
     WHERE queue.tenant_id = p_tenant_id AND queue.name = p_name;
END;
$$;
