-- queen_purge_letters_v1: delete the dead letters of one partition.
--
-- Called by  brokers/store/queue_calls.py, purge_letters()
-- Reads      queen_queue, queen_partition
-- Writes     queen_dead_letter
-- Locks      the rows that go, skipping those held by others (a replay moves them).
-- Cost       at most p_rows_max rows.
-- Answers    how many are gone.

CREATE OR REPLACE FUNCTION queen_purge_letters_v1(
    p_tenant_id uuid,
    p_queue     text,
    p_partition text,
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
    v_ids   uuid[];
    v_until timestamptz := coalesce(p_until, clock_timestamp());
BEGIN
    v_ids := ARRAY(
        SELECT letter.id
          FROM queen_queue queue
          JOIN queen_partition lane ON lane.queue_id = queue.id AND lane.name = p_partition
          JOIN queen_dead_letter letter
            ON letter.partition_id = lane.id AND letter.failed_at <= v_until
         WHERE queue.tenant_id = p_tenant_id AND queue.name = p_queue
         ORDER BY letter.consumer_group, letter.message_offset
         LIMIT p_rows_max
           FOR UPDATE OF letter SKIP LOCKED);
    DELETE FROM queen_dead_letter WHERE id = ANY (v_ids);
    RETURN QUERY SELECT cardinality(v_ids)::bigint, v_until;
END;
$$;
