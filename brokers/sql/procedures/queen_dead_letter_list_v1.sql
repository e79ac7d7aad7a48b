-- queen_dead_letter_list_v1: a page of a tenant's dead letters, newest first.
--
-- Called by  brokers/store/management_calls.py, dead_letter_list()
-- Reads      queen_dead_letter, queen_partition, queen_queue
-- Locks      nothing
-- Cost       of a queue: one probe a partition and the rows up to the end of the page in
--            each; of all queues: the newest rows up to the end of the page.
-- Answers    at most p_limit rows after p_offset. The page ends before its payloads pass
--            p_bytes_max, but never before its first row.
--
-- Rows of a deleted queue that are not reclaimed yet are out of reach: there is no
-- partition to come by.

CREATE OR REPLACE FUNCTION queen_dead_letter_list_v1(
    p_tenant_id uuid,
    p_queue     text,
    p_group     text,
    p_limit     integer,
    p_offset    bigint,
    p_bytes_max bigint
)
RETURNS TABLE (
    id uuid, partition_uid uuid, queue_name text, partition_name text, consumer_group text,
    transaction_id text, error text, retry_count bigint, payload bytea, encrypted boolean,
    failed_at timestamptz
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_end bigint := least(p_offset, 9223372036854775807 - p_limit) + p_limit;
    v_ids uuid[];
BEGIN
    IF p_queue IS NULL THEN
        v_ids := ARRAY(
            SELECT letter.id
              FROM queen_dead_letter letter
              JOIN queen_partition lane ON lane.id = letter.partition_id
              JOIN queen_queue queue ON queue.id = lane.queue_id AND queue.tenant_id = p_tenant_id
             WHERE p_group IS NULL OR letter.consumer_group = p_group
             ORDER BY letter.failed_at DESC, letter.id
             LIMIT p_limit OFFSET p_offset);
    ELSE
        v_ids := ARRAY(
            SELECT newest.id
              FROM queen_queue queue
              JOIN queen_partition lane ON lane.queue_id = queue.id
             CROSS JOIN LATERAL (
                SELECT letter.id, letter.failed_at
                  FROM queen_dead_letter letter
                 WHERE letter.partition_id = lane.id
                   AND (p_group IS NULL OR letter.consumer_group = p_group)
                 ORDER BY letter.failed_at DESC, letter.id
                 LIMIT v_end
             ) AS newest
             WHERE queue.tenant_id = p_tenant_id AND queue.name = p_queue
             ORDER BY newest.failed_at DESC, newest.id
             LIMIT p_limit OFFSET p_offset);
    END IF;

    -- Lengths first: a payload is only fetched when it is part of the page.
    v_ids := ARRAY(
        SELECT sized.id
          FROM (
            SELECT letter.id, asked.no,
                   sum(octet_length(letter.payload)) OVER (ORDER BY asked.no) AS behind
              FROM unnest(v_ids) WITH ORDINALITY AS asked(id, no)
              JOIN queen_dead_letter letter ON letter.id = asked.id
          ) AS sized
         WHERE sized.behind <= p_bytes_max OR sized.no = 1
         ORDER BY sized.no);

    RETURN QUERY
    SELECT letter.id, lane.uid, queue.name, lane.name, letter.consumer_group,
           letter.transaction_id, letter.error, letter.retry_count, letter.payload,
           letter.encrypted, letter.failed_at
      FROM unnest(v_ids) WITH ORDINALITY AS page(id, no)
      JOIN queen_dead_letter letter ON letter.id = page.id
      JOIN queen_partition lane ON lane.id = letter.partition_id
      JOIN queen_queue queue ON queue.id = lane.queue_id
     ORDER BY page.no;
END;
$$;
