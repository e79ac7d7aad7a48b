-- queen_dead_letter_weed_v1: one bounded step of deleting the dead letters of a queue that match.
--
-- Called by  brokers/store/letter_calls.py, letter_weed(), until a step says that it was the last
-- Reads      queen_queue
-- Writes     queen_dead_letter
-- Locks      dead-letter rows in ascending (partition, group, offset), the order in which
--            acks write them.
-- Cost       at most p_looks_max rows of one index, their errors if one is asked for, and at
--            most p_rows_max rows deleted.
-- Answers    how many were deleted and looked at, the last one looked at (behind it the next step
--            goes on; null when there was none), whether these were all, and the time up to which
--            letters are meant: p_to, or now if that is earlier.
--
-- The oldest failure first. What fails later is no part of it, so a purge ends; a letter that
-- dies anew while we wait for its row is one of those.

CREATE OR REPLACE FUNCTION queen_dead_letter_weed_v1(
    p_tenant_id  uuid,
    p_queue      text,
    p_group      text,
    p_error_text text,
    p_from       timestamptz,
    p_to         timestamptz,
    p_at         timestamptz,
    p_id         uuid,
    p_rows_max   integer,
    p_looks_max  integer
)
RETURNS TABLE (
    deleted bigint, looks integer, reached_at timestamptz, reached_id uuid, at_end boolean,
    until timestamptz
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_queue_id bigint;
    v_looked   refcursor;
    v_letter   record;
    v_ids      uuid[] := '{}';
BEGIN
    SELECT queue.id INTO v_queue_id
      FROM queen_queue queue
     WHERE queue.tenant_id = p_tenant_id AND queue.name = p_queue;
    until := least(p_to, clock_timestamp());
    looks := 0;
    at_end := false;
    OPEN v_looked FOR EXECUTE format($statement$
        SELECT letter.id, letter.failed_at,
               CASE WHEN $3 IS NULL THEN true ELSE position($3 IN letter.error) > 0 END AS fits
          FROM queen_dead_letter letter
         WHERE letter.queue_id = $1 %s
           AND (letter.failed_at, letter.id) > ($4, $5)
           AND letter.failed_at <= $6
         ORDER BY letter.failed_at, letter.id
         LIMIT $7
        $statement$, CASE WHEN p_group IS NOT NULL THEN 'AND letter.consumer_group = $2' END)
      USING v_queue_id, p_group, p_error_text, coalesce(p_at, p_from, '-infinity'),
            coalesce(p_id, '00000000-0000-0000-0000-000000000000'), until, p_looks_max;
    LOOP
        FETCH v_looked INTO v_letter;
        IF NOT FOUND THEN
            at_end := looks < p_looks_max;
            EXIT;
        END IF;
        looks := looks + 1;
        reached_at := v_letter.failed_at;
        reached_id := v_letter.id;
        IF v_letter.fits THEN
            v_ids := v_ids || v_letter.id;
        END IF;
        EXIT WHEN cardinality(v_ids) >= p_rows_max;
    END LOOP;
    CLOSE v_looked;

    v_ids := ARRAY(
        SELECT letter.id
          FROM queen_dead_letter letter
         WHERE letter.id = ANY (v_ids)
           AND letter.failed_at <= until
           AND (p_error_text IS NULL OR position(p_error_text IN letter.error) > 0)
         ORDER BY letter.partition_id, letter.consumer_group, letter.message_offset
           FOR UPDATE);
    DELETE FROM queen_dead_letter WHERE id = ANY (v_ids);
    GET DIAGNOSTICS deleted = ROW_COUNT;
    RETURN NEXT;
END;
$$;
