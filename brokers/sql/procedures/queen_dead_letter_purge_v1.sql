-- queen_dead_letter_purge_v1: one bounded step of deleting the dead letters of a queue.
--
-- Called by  brokers/store/management_calls.py, dead_letter_purge(), until a step deletes
--            fewer than p_rows_max
-- Reads      queen_queue, queen_partition
-- Writes     queen_dead_letter
-- Locks      dead-letter rows in ascending (partition, group, offset), the order in which
--            acks write them.
-- Cost       a probe for each partition from p_after on, and at most p_rows_max rows.
-- Answers    how many were deleted, and where the next step goes on: the last partition
--            reached, and the time of the first step. What fails later than that is not part
--            of the purge, so a purge ends.

CREATE OR REPLACE FUNCTION queen_dead_letter_purge_v1(
    p_tenant_id uuid,
    p_queue     text,
    p_group     text,
    p_after     bigint,
    p_until     timestamptz,
    p_rows_max  integer
)
RETURNS TABLE (deleted bigint, reached bigint, until timestamptz)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_until timestamptz := coalesce(p_until, clock_timestamp());
    v_ids   uuid[];
BEGIN
    SELECT array_agg(held.id), coalesce(max(held.partition_id), p_after)
      INTO v_ids, reached
      FROM (
        SELECT letter.id, letter.partition_id
          FROM (
            SELECT lane.id
              FROM queen_queue queue
              JOIN queen_partition lane ON lane.queue_id = queue.id AND lane.id >= p_after
             WHERE queue.tenant_id = p_tenant_id AND queue.name = p_queue
             ORDER BY lane.id
          ) AS lane
         CROSS JOIN LATERAL (
            SELECT one.id, one.partition_id
              FROM queen_dead_letter one
             WHERE one.partition_id = lane.id
               AND (p_group IS NULL OR one.consumer_group = p_group)
               AND one.failed_at <= v_until
             ORDER BY one.consumer_group, one.message_offset
             LIMIT p_rows_max
               FOR UPDATE
         ) AS letter
         LIMIT p_rows_max
      ) AS held;
    DELETE FROM queen_dead_letter WHERE id = ANY (v_ids);
    GET DIAGNOSTICS deleted = ROW_COUNT;
    until := v_until;
    RETURN NEXT;
END;
$$;
