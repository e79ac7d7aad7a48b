-- queen_dead_letter_purge_v1: one bounded step of deleting the dead letters of a queue.
--
-- Called by  brokers/store/management_calls.py, dead_letter_purge(), until it answers less
--            than p_rows_max
-- Reads      queen_queue, queen_partition
-- Writes     queen_dead_letter
-- Locks      dead-letter rows in ascending (partition, group, offset), the order in which
--            acks write them.
-- Cost       a probe a partition, and at most p_rows_max rows.
-- Answers    how many were deleted, and the time of the first step, which the next ones are
--            given as p_until: what fails during the purge is not part of it, so it ends.

CREATE OR REPLACE FUNCTION queen_dead_letter_purge_v1(
    p_tenant_id uuid,
    p_queue     text,
    p_group     text,
    p_until     timestamptz,
    p_rows_max  integer
)
RETURNS TABLE (deleted bigint, until timestamptz)
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
    v_ids := ARRAY(
        SELECT letter.id
          FROM queen_queue queue
          JOIN queen_partition lane ON lane.queue_id = queue.id
          JOIN queen_dead_letter letter ON letter.partition_id = lane.id
         WHERE queue.tenant_id = p_tenant_id AND queue.name = p_queue
           AND (p_group IS NULL OR letter.consumer_group = p_group)
           AND letter.failed_at <= v_until
         ORDER BY letter.partition_id, letter.consumer_group, letter.message_offset
         LIMIT p_rows_max
           FOR UPDATE OF letter);
    DELETE FROM queen_dead_letter WHERE id = ANY (v_ids) AND failed_at <= v_until;
    GET DIAGNOSTICS deleted = ROW_COUNT;
    until := v_until;
    RETURN NEXT;
END;
$$;
