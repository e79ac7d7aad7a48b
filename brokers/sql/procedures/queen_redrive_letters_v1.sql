-- queen_redrive_letters_v1: the dead letters that a redrive moves next.
--
-- Called by  brokers/store/redrive_calls.py, redrive_letters()
-- Reads      queen_redrive, queen_queue, queen_partition, queen_dead_letter
-- Locks      nothing: queen_redrive_step_v1 finds out what has changed since.
-- Cost       at most p_looks_max rows of one index, those that match, and their payloads up to
--            p_bytes_max, but never without the first.
-- Answers    nothing when the job does not run. Else its letters, the oldest failure first, at
--            most p_rows_max and what the rate allows in a quarter of a second, and behind them
--            one row without an id: whose the job is, where it was and how far was looked
--            (times and ids), how many rows that were, and whether these were all. There
--            queue_id is null when the queue was deleted.
--
-- A timer that could not be fired is no message of the queue and is passed over.

CREATE OR REPLACE FUNCTION queen_redrive_letters_v1(
    p_id        uuid,
    p_rows_max  integer,
    p_bytes_max bigint,
    p_looks_max integer
)
RETURNS TABLE (
    id uuid, partition_id bigint, partition_name text, payload bytea, encrypted boolean,
    producer_sub text, queue_id bigint, config_version bigint, encryption_enabled boolean,
    queue_name text, tenant_id uuid, target_queue text, target_partition text,
    from_at timestamptz, from_id uuid, reached_at timestamptz, reached_id uuid, looks integer,
    at_end boolean
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_job    queen_redrive;
    v_queue  queen_queue;
    v_letter record;
    v_looked refcursor;
    v_at     timestamptz;
    v_id     uuid;
    v_ids    uuid[] := '{}';
    v_bytes  bigint := 0;
    v_looks  integer := 0;
    v_end    boolean := false;
    v_rows   integer;
BEGIN
    SELECT * INTO v_job FROM queen_redrive WHERE id = p_id AND state = 'running';
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT * INTO v_queue FROM queen_queue WHERE id = v_job.queue_id;
    v_rows := least(greatest(v_job.rate / 4, 1), p_rows_max);
    v_at := coalesce(v_job.reached_at, v_job.failed_from, '-infinity');
    v_id := coalesce(v_job.reached_id, '00000000-0000-0000-0000-000000000000');

    IF v_job.consumer_group IS NULL THEN
        OPEN v_looked FOR
        SELECT letter.id, letter.failed_at, letter.consumer_group, letter.error,
               octet_length(letter.payload) AS size
          FROM queen_dead_letter letter
         WHERE letter.queue_id = v_queue.id
           AND (letter.failed_at, letter.id) > (v_at, v_id)
           AND letter.failed_at <= v_job.failed_to
         ORDER BY letter.failed_at, letter.id
         LIMIT p_looks_max;
    ELSE
        OPEN v_looked FOR
        SELECT letter.id, letter.failed_at, letter.consumer_group, letter.error,
               octet_length(letter.payload) AS size
          FROM queen_dead_letter letter
         WHERE letter.queue_id = v_queue.id AND letter.consumer_group = v_job.consumer_group
           AND (letter.failed_at, letter.id) > (v_at, v_id)
           AND letter.failed_at <= v_job.failed_to
         ORDER BY letter.failed_at, letter.id
         LIMIT p_looks_max;
    END IF;
    LOOP
        FETCH v_looked INTO v_letter;
        IF NOT FOUND THEN
            v_end := v_looks < p_looks_max;
            EXIT;
        END IF;
        IF v_letter.consumer_group <> '__timer__'
           AND (v_job.error_text IS NULL OR position(v_job.error_text IN v_letter.error) > 0) THEN
            v_bytes := v_bytes + v_letter.size;
            EXIT WHEN v_bytes > p_bytes_max AND v_ids <> '{}';
            v_ids := v_ids || v_letter.id;
        END IF;
        v_looks := v_looks + 1;
        v_at := v_letter.failed_at;
        v_id := v_letter.id;
        EXIT WHEN cardinality(v_ids) >= v_rows;
    END LOOP;
    CLOSE v_looked;

    RETURN QUERY
    SELECT letter.id, lane.id, lane.name, letter.payload, letter.encrypted, letter.producer_sub,
           v_queue.id, v_queue.config_version, v_queue.encryption_enabled,
           NULL::text, NULL::uuid, NULL::text, NULL::text, NULL::timestamptz, NULL::uuid,
           NULL::timestamptz, NULL::uuid, NULL::integer, NULL::boolean
      FROM unnest(v_ids) WITH ORDINALITY AS found(id, no)
      JOIN queen_dead_letter letter ON letter.id = found.id
      JOIN queen_partition lane ON lane.id = letter.partition_id
     ORDER BY found.no;
    RETURN QUERY
    SELECT NULL::uuid, NULL::bigint, NULL::text, NULL::bytea, NULL::boolean, NULL::text,
           v_queue.id, NULL::bigint, NULL::boolean, v_job.queue_name, v_job.tenant_id,
           v_job.target_queue, v_job.target_partition, v_job.reached_at, v_job.reached_id,
           CASE WHEN v_looks > 0 THEN v_at ELSE v_job.reached_at END,
           CASE WHEN v_looks > 0 THEN v_id ELSE v_job.reached_id END, v_looks, v_end;
END;
$$;
