-- queen_dead_letter_search_v1: one bounded look through a tenant's dead letters, behind a place.
--
-- Called by  brokers/store/letter_calls.py, letter_search()
-- Reads      queen_dead_letter, queen_partition, queen_queue
-- Locks      nothing
-- Cost       at most p_looks_max rows of the one index that fits, their errors if one is asked
--            for, and payloads up to p_bytes_max (one more when the first is larger).
-- Answers    the letters that match, the newest first, or with p_newer the oldest first; errors
--            and payloads cut short. Behind them one row without an id: the last letter that was
--            looked at (null when there was none), how many were looked at, how many of them were
--            encrypted and so not searched for p_payload_text, and whether these were all.
--
-- The look starts behind (p_at, p_id); null is the end that it starts from. p_from and p_to are
-- included. Texts are found as they are written: case counts. Letters of a deleted queue that
-- are not reclaimed yet are looked at and passed over.

CREATE OR REPLACE FUNCTION queen_dead_letter_search_v1(
    p_tenant_id    uuid,
    p_queue        text,
    p_group        text,
    p_error_text   text,
    p_payload_text bytea,
    p_from         timestamptz,
    p_to           timestamptz,
    p_newer        boolean,
    p_at           timestamptz,
    p_id           uuid,
    p_limit        integer,
    p_looks_max    integer,
    p_bytes_max    bigint
)
RETURNS TABLE (
    id uuid, queue_name text, partition_name text, consumer_group text, transaction_id text,
    error text, retry_count bigint, failed_at timestamptz, encrypted boolean, size bigint,
    payload bytea, reached_at timestamptz, reached_id uuid, looks integer, unsearched integer,
    at_end boolean
)
LANGUAGE plpgsql
STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_sort = off
SET enable_incremental_sort = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_queue_id   bigint;
    v_of         text := 'letter.tenant_id = $1';
    v_looked     refcursor;
    v_letter     record;
    v_ids        uuid[] := '{}';
    v_looks      integer := 0;
    v_unsearched integer := 0;
    v_bytes      bigint := 0;
    v_end        boolean := false;
    v_at         timestamptz;
    v_id         uuid;
BEGIN
    IF p_queue IS NOT NULL THEN
        SELECT queue.id INTO v_queue_id
          FROM queen_queue queue
         WHERE queue.tenant_id = p_tenant_id AND queue.name = p_queue;
        v_of := 'letter.queue_id = $2';
    END IF;
    IF p_group IS NOT NULL THEN
        v_of := v_of || ' AND letter.consumer_group = $3';
    END IF;
    -- Four indexes and two directions: each is a statement of its own, planned when it is asked.
    OPEN v_looked FOR EXECUTE format($statement$
        SELECT letter.id, letter.failed_at, letter.partition_id, letter.encrypted,
               octet_length(letter.payload) AS size, tested.error_fits,
               CASE WHEN tested.error_fits AND NOT letter.encrypted AND $5 IS NOT NULL
                    THEN position($5 IN letter.payload) > 0 END AS payload_fits
          FROM queen_dead_letter letter
         CROSS JOIN LATERAL (
            SELECT CASE WHEN $4 IS NULL THEN true
                        ELSE position($4 IN letter.error) > 0 END AS error_fits
         ) AS tested
         WHERE %1$s
           AND letter.failed_at >= $6 AND letter.failed_at <= $7
           AND ($8 IS NULL OR (letter.failed_at, letter.id) %2$s ($8, $9))
         ORDER BY letter.failed_at %3$s, letter.id %3$s
         LIMIT $10
        $statement$,
        v_of, CASE WHEN p_newer THEN '>' ELSE '<' END, CASE WHEN p_newer THEN 'ASC' ELSE 'DESC' END)
      USING p_tenant_id, v_queue_id, p_group, p_error_text, p_payload_text,
            greatest(coalesce(p_from, '-infinity'), CASE WHEN p_newer THEN p_at END),
            least(coalesce(p_to, 'infinity'), CASE WHEN NOT p_newer THEN p_at END),
            p_at, p_id, p_looks_max;
    LOOP
        FETCH v_looked INTO v_letter;
        IF NOT FOUND THEN
            v_end := v_looks < p_looks_max;
            EXIT;
        END IF;
        v_looks := v_looks + 1;
        v_at := v_letter.failed_at;
        v_id := v_letter.id;
        IF v_letter.error_fits THEN
            IF p_payload_text IS NOT NULL THEN
                v_bytes := v_bytes + CASE WHEN v_letter.encrypted THEN 0 ELSE v_letter.size END;
                v_unsearched := v_unsearched + v_letter.encrypted::integer;
            END IF;
            IF (p_payload_text IS NULL OR v_letter.payload_fits)
               AND EXISTS (SELECT FROM queen_partition lane WHERE lane.id = v_letter.partition_id)
            THEN
                v_ids := v_ids || v_letter.id;
            END IF;
        END IF;
        EXIT WHEN cardinality(v_ids) >= p_limit OR v_bytes >= p_bytes_max;
    END LOOP;
    CLOSE v_looked;

    RETURN QUERY
    SELECT letter.id, queue.name, lane.name, letter.consumer_group, letter.transaction_id,
           left(letter.error, 500), letter.retry_count, letter.failed_at, letter.encrypted,
           octet_length(letter.payload)::bigint,
           CASE WHEN NOT letter.encrypted THEN substr(letter.payload, 1, 300) END,
           NULL::timestamptz, NULL::uuid, NULL::integer, NULL::integer, NULL::boolean
      FROM unnest(v_ids) WITH ORDINALITY AS found(id, no)
      JOIN queen_dead_letter letter ON letter.id = found.id
      JOIN queen_partition lane ON lane.id = letter.partition_id
      JOIN queen_queue queue ON queue.id = lane.queue_id
     ORDER BY found.no;
    RETURN QUERY
    SELECT NULL::uuid, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint,
           NULL::timestamptz, NULL::boolean, NULL::bigint, NULL::bytea, v_at, v_id, v_looks,
           v_unsearched, v_end;
END;
$$;
