-- queen_dead_letter_delete_v1: delete the dead letters of one message, of every group.
--
-- Called by  brokers/store/message_calls.py, dead_letter_delete()
-- Reads      queen_queue, queen_partition, queen_dead_letter
-- Writes     queen_dead_letter
-- Locks      dead-letter rows in ascending (partition, group, offset).
-- Cost       a few index probes and the rows of the address.
-- Answers    how many were deleted; 0 when the address is unknown or another tenant's.
--
-- p_transaction is the canonical literal.

CREATE OR REPLACE FUNCTION queen_dead_letter_delete_v1(
    p_tenant_id     uuid,
    p_partition_uid uuid,
    p_transaction   text
)
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
          FROM queen_partition lane
          JOIN queen_queue queue ON queue.id = lane.queue_id AND queue.tenant_id = p_tenant_id
          JOIN queen_dead_letter letter ON letter.partition_id = lane.id
         WHERE lane.uid = p_partition_uid
           AND letter.transaction_hash = hashtextextended(p_transaction, 0)
           AND letter.transaction_id = p_transaction
         ORDER BY letter.consumer_group, letter.message_offset
           FOR UPDATE OF letter);
    DELETE FROM queen_dead_letter WHERE id = ANY (v_ids);
    GET DIAGNOSTICS v_deleted = ROW_COUNT;
    RETURN v_deleted;
END;
$$;
