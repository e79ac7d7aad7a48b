-- queen_dead_letter_discard_v1: delete these dead letters.
--
-- Called by  brokers/store/letter_calls.py, letter_discard()
-- Reads      queen_dead_letter
-- Writes     queen_dead_letter
-- Locks      dead-letter rows in ascending (partition, group, offset).
-- Cost       a probe a letter.
-- Answers    how many were deleted: those that are gone already are none of them.

CREATE OR REPLACE FUNCTION queen_dead_letter_discard_v1(p_ids uuid[])
RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
    v_ids     uuid[];
    v_deleted bigint;
BEGIN
    v_ids := ARRAY(
        SELECT letter.id
          FROM queen_dead_letter letter
         WHERE letter.id = ANY (p_ids)
         ORDER BY letter.partition_id, letter.consumer_group, letter.message_offset
           FOR UPDATE);
    DELETE FROM queen_dead_letter WHERE id = ANY (v_ids);
    GET DIAGNOSTICS v_deleted = ROW_COUNT;
    RETURN v_deleted;
END;
$$;
