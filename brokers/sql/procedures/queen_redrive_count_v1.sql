-- queen_redrive_count_v1: how many dead letters a redrive would move.
--
-- Called by  brokers/store/redrive_calls.py, redrive_count()
-- Reads      queen_queue, queen_dead_letter
-- Locks      nothing
-- Cost       at most p_rows_max rows of one index and, for an error text, their pages.
-- Answers    the number; null when there are more than p_rows_max to look at.

CREATE OR REPLACE FUNCTION queen_redrive_count_v1(
    p_tenant_id  uuid,
    p_queue      text,
    p_group      text,
    p_error_text text,
    p_from       timestamptz,
    p_to         timestamptz,
    p_rows_max   integer
)
RETURNS bigint
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
DECLARE
    v_looked bigint;
    v_total  bigint;
BEGIN
    SELECT count(*),
           count(*) FILTER (WHERE looked.consumer_group <> '__timer__'
                              AND (p_error_text IS NULL
                                   OR position(p_error_text IN looked.error) > 0))
      INTO v_looked, v_total
      FROM (
        SELECT letter.consumer_group,
               CASE WHEN p_error_text IS NOT NULL THEN letter.error END AS error
          FROM queen_queue queue
          JOIN queen_dead_letter letter ON letter.queue_id = queue.id
         WHERE queue.tenant_id = p_tenant_id AND queue.name = p_queue
           AND (p_group IS NULL OR letter.consumer_group = p_group)
           AND letter.failed_at >= coalesce(p_from, '-infinity')
           AND letter.failed_at <= coalesce(p_to, 'infinity')
         LIMIT p_rows_max + 1
      ) AS looked;
    RETURN CASE WHEN v_looked <= p_rows_max THEN v_total END;
END;
$$;
