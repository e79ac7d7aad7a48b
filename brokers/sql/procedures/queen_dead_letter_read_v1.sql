-- queen_dead_letter_read_v1: one dead letter with all that is known of it.
--
-- Called by  brokers/store/letter_calls.py, letter_read()
-- Reads      queen_dead_letter, queen_partition, queen_queue
-- Locks      nothing
-- Cost       three index probes, and the payload if it has at most p_bytes_max bytes.
-- Answers    one row or none: unknown, or its queue was deleted. Without its payload, that is null.
--
-- Whose it is stands in the row: what looks here is an operator, who names no tenant.

CREATE OR REPLACE FUNCTION queen_dead_letter_read_v1(p_id uuid, p_bytes_max bigint)
RETURNS TABLE (
    id uuid, tenant_id uuid, queue_name text, partition_name text, partition_uid uuid,
    consumer_group text, message_offset bigint, message_id uuid, transaction_id text,
    producer_sub text, error text, retry_count bigint, failed_at timestamptz, encrypted boolean,
    size bigint, payload bytea, seals boolean
)
LANGUAGE sql
STABLE
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
    SELECT letter.id, queue.tenant_id, queue.name, lane.name, lane.uid, letter.consumer_group,
           letter.message_offset, letter.message_id, letter.transaction_id, letter.producer_sub,
           letter.error, letter.retry_count, letter.failed_at, letter.encrypted,
           octet_length(letter.payload)::bigint,
           CASE WHEN octet_length(letter.payload) <= p_bytes_max THEN letter.payload END,
           queue.encryption_enabled
      FROM queen_dead_letter letter
      JOIN queen_partition lane ON lane.id = letter.partition_id
      JOIN queen_queue queue ON queue.id = lane.queue_id
     WHERE letter.id = p_id
$$;
