-- queen_dead_letter_find_v1: one dead letter of a tenant, by its id or by its address.
--
-- Called by  brokers/store/management_calls.py, dead_letter_find()
-- Reads      queen_dead_letter, queen_partition, queen_queue
-- Locks      nothing
-- Cost       a few index probes.
-- Answers    one row or none. An address (partition and transactionId) may have rows of
--            several groups: the newest by failure time is meant.
--
-- Either p_id is given, or p_partition_uid with p_transaction, the canonical literal.

CREATE OR REPLACE FUNCTION queen_dead_letter_find_v1(
    p_tenant_id     uuid,
    p_id            uuid,
    p_partition_uid uuid,
    p_transaction   text
)
RETURNS TABLE (
    id uuid, queue_name text, partition_name text, consumer_group text, transaction_id text,
    payload bytea, encrypted boolean, producer_sub text
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_id uuid := p_id;
BEGIN
    IF v_id IS NULL THEN
        SELECT letter.id INTO v_id
          FROM queen_partition lane
          JOIN queen_dead_letter letter ON letter.partition_id = lane.id
         WHERE lane.uid = p_partition_uid
           AND letter.transaction_hash = hashtextextended(p_transaction, 0)
           AND letter.transaction_id = p_transaction
         ORDER BY letter.failed_at DESC, letter.id DESC
         LIMIT 1;
    END IF;
    RETURN QUERY
    SELECT letter.id, queue.name, lane.name, letter.consumer_group, letter.transaction_id,
           letter.payload, letter.encrypted, letter.producer_sub
      FROM queen_dead_letter letter
      JOIN queen_partition lane ON lane.id = letter.partition_id
      JOIN queen_queue queue ON queue.id = lane.queue_id
     WHERE letter.id = v_id AND queue.tenant_id = p_tenant_id;
END;
$$;
