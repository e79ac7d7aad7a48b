-- queen_dead_letter_list_v1: a page of a tenant's dead letters, newest first.
--
-- Called by  brokers/store/management_calls.py, dead_letter_list()
-- Reads      queen_dead_letter, queen_partition, queen_queue
-- Locks      nothing
-- Cost       the newest rows up to the end of the page, of one index, whatever else there is:
--            of the queue or the tenant, and of the group if one is named. Without a queue, where
--            thousands of a deleted queue are in the way, as many of each of the tenant's queues.
-- Answers    at most p_limit rows after p_offset. The page ends before its payloads pass
--            p_bytes_max, but never before its first row.
--
-- Rows of a deleted queue that are not reclaimed yet are out of reach: there is no
-- partition to come by. A page of the whole tenant steps over some thousands of them.

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
    v_queue_id bigint;
    v_ids      uuid[];
BEGIN
    -- Four ways to ask, four indexes, each read backwards; one statement for all of them
    -- would be planned for none.
    IF p_queue IS NULL THEN
        v_ids := queen_dead_letter_newest_v1(p_tenant_id, p_group, p_limit, p_offset);
    ELSE
        SELECT queue.id INTO v_queue_id
          FROM queen_queue queue
         WHERE queue.tenant_id = p_tenant_id AND queue.name = p_queue;
        IF p_group IS NULL THEN
            v_ids := ARRAY(
                SELECT letter.id
                  FROM queen_dead_letter letter
                 WHERE letter.queue_id = v_queue_id
                 ORDER BY letter.failed_at DESC, letter.id DESC
                 LIMIT p_limit OFFSET p_offset);
        ELSE
            v_ids := ARRAY(
                SELECT letter.id
                  FROM queen_dead_letter letter
                 WHERE letter.queue_id = v_queue_id AND letter.consumer_group = p_group
                 ORDER BY letter.failed_at DESC, letter.id DESC
                 LIMIT p_limit OFFSET p_offset);
        END IF;
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

-- The same of the whole tenant, as ids. Where rows of deleted queues are in the way of the page,
-- and more than 5000 of them, the newest of each queue are merged.

CREATE OR REPLACE FUNCTION queen_dead_letter_newest_v1(
    p_tenant_id uuid,
    p_group     text,
    p_limit     integer,
    p_offset    bigint
)
RETURNS uuid[]
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    v_end   constant bigint := p_offset + p_limit;
    v_looks constant bigint := v_end + 5000;
    v_ids   uuid[];
BEGIN
    IF p_group IS NULL THEN
        v_ids := ARRAY(
            SELECT looked.id
              FROM (
                SELECT letter.id, letter.failed_at, letter.partition_id
                  FROM queen_dead_letter letter
                 WHERE letter.tenant_id = p_tenant_id
                 ORDER BY letter.failed_at DESC, letter.id DESC
                 LIMIT v_looks
              ) AS looked
             WHERE EXISTS (SELECT FROM queen_partition lane WHERE lane.id = looked.partition_id)
             ORDER BY looked.failed_at DESC, looked.id DESC
             LIMIT p_limit OFFSET p_offset);
        IF cardinality(v_ids) >= p_limit OR NOT EXISTS (
            SELECT
              FROM queen_dead_letter letter
             WHERE letter.tenant_id = p_tenant_id
             ORDER BY letter.failed_at DESC, letter.id DESC
             LIMIT 1 OFFSET v_looks)
        THEN
            RETURN v_ids;
        END IF;
        RETURN ARRAY(
            SELECT newest.id
              FROM queen_queue queue
             CROSS JOIN LATERAL (
                SELECT letter.id, letter.failed_at
                  FROM queen_dead_letter letter
                 WHERE letter.queue_id = queue.id
                 ORDER BY letter.failed_at DESC, letter.id DESC
                 LIMIT v_end
             ) AS newest
             WHERE queue.tenant_id = p_tenant_id
             ORDER BY newest.failed_at DESC, newest.id DESC
             LIMIT p_limit OFFSET p_offset);
    END IF;
    v_ids := ARRAY(
        SELECT looked.id
          FROM (
            SELECT letter.id, letter.failed_at, letter.partition_id
              FROM queen_dead_letter letter
             WHERE letter.tenant_id = p_tenant_id AND letter.consumer_group = p_group
             ORDER BY letter.failed_at DESC, letter.id DESC
             LIMIT v_looks
          ) AS looked
         WHERE EXISTS (SELECT FROM queen_partition lane WHERE lane.id = looked.partition_id)
         ORDER BY looked.failed_at DESC, looked.id DESC
         LIMIT p_limit OFFSET p_offset);
    IF cardinality(v_ids) >= p_limit OR NOT EXISTS (
        SELECT
          FROM queen_dead_letter letter
         WHERE letter.tenant_id = p_tenant_id AND letter.consumer_group = p_group
         ORDER BY letter.failed_at DESC, letter.id DESC
         LIMIT 1 OFFSET v_looks)
    THEN
        RETURN v_ids;
    END IF;
    RETURN ARRAY(
        SELECT newest.id
          FROM queen_queue queue
         CROSS JOIN LATERAL (
            SELECT letter.id, letter.failed_at
              FROM queen_dead_letter letter
             WHERE letter.queue_id = queue.id AND letter.consumer_group = p_group
             ORDER BY letter.failed_at DESC, letter.id DESC
             LIMIT v_end
         ) AS newest
         WHERE queue.tenant_id = p_tenant_id
         ORDER BY newest.failed_at DESC, newest.id DESC
         LIMIT p_limit OFFSET p_offset);
END;
$$;
