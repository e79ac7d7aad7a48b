-- queen_dead_letter_sample_v1: why the newest dead letters of a queue died; no payload.
--
-- Called by  brokers/store/message_calls.py, dead_letter_sample()
-- Reads      queen_queue, queen_dead_letter, queen_queue_statistics
-- Locks      nothing
-- Cost       p_limit rows, two probes, and a count that ends at p_count_max.
-- Answers    the newest letters, their errors up to 4096 characters, and behind them one row
--            without an error: how many there are (beyond p_count_max as last counted by the
--            statistics, if that is more), and when the oldest and the newest failed.

CREATE OR REPLACE FUNCTION queen_dead_letter_sample_v1(
    p_tenant_id uuid,
    p_queue     text,
    p_limit     integer,
    p_count_max integer
)
RETURNS TABLE (
    error text, retry_count bigint, consumer_group text, failed_at timestamptz, bytes bigint,
    oldest timestamptz
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_queue_id bigint;
    v_rows     bigint;
BEGIN
    SELECT id INTO v_queue_id FROM queen_queue WHERE tenant_id = p_tenant_id AND name = p_queue;
    RETURN QUERY
    SELECT left(letter.error, 4096), letter.retry_count, letter.consumer_group, letter.failed_at,
           octet_length(letter.payload)::bigint, NULL::timestamptz
      FROM queen_dead_letter letter
     WHERE letter.queue_id = v_queue_id
     ORDER BY letter.failed_at DESC, letter.id DESC
     LIMIT p_limit;
    SELECT count(*) INTO v_rows
      FROM (
        SELECT FROM queen_dead_letter letter WHERE letter.queue_id = v_queue_id LIMIT p_count_max
      ) AS counted;
    IF v_rows >= p_count_max THEN
        SELECT greatest(v_rows, max(known.dead_letters)) INTO v_rows
          FROM queen_queue_statistics known
         WHERE known.queue_id = v_queue_id;
    END IF;
    RETURN QUERY
    SELECT NULL::text, v_rows, NULL::text,
           (SELECT max(letter.failed_at) FROM queen_dead_letter letter
             WHERE letter.queue_id = v_queue_id),
           NULL::bigint,
           (SELECT min(letter.failed_at) FROM queen_dead_letter letter
             WHERE letter.queue_id = v_queue_id);
END;
$$;
