-- queen_dead_letter_tally_v1: how many dead letters of a queue match, as far as was looked.
--
-- Called by  brokers/store/letter_calls.py, letter_tally()
-- Reads      queen_queue, queen_dead_letter
-- Locks      nothing
-- Cost       at most p_looks_max rows of one index and, for an error text, their pages.
-- Answers    how many match of those looked at, how many of these are timers that could not be
--            fired, and whether there are more to look at. Null times bound nothing.

CREATE OR REPLACE FUNCTION queen_dead_letter_tally_v1(
    p_tenant_id  uuid,
    p_queue      text,
    p_group      text,
    p_error_text text,
    p_from       timestamptz,
    p_to         timestamptz,
    p_looks_max  integer
)
RETURNS TABLE (matching bigint, timers bigint, more boolean)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
BEGIN
    RETURN QUERY
    SELECT count(*) FILTER (WHERE looked.no <= p_looks_max AND looked.fits),
           count(*) FILTER (WHERE looked.no <= p_looks_max AND looked.fits AND looked.timer),
           count(*) > p_looks_max
      FROM (
        SELECT row_number() OVER () AS no, letter.consumer_group = '__timer__' AS timer,
               CASE WHEN p_error_text IS NULL THEN true
                    ELSE position(p_error_text IN letter.error) > 0 END AS fits
          FROM queen_queue queue
          JOIN queen_dead_letter letter ON letter.queue_id = queue.id
         WHERE queue.tenant_id = p_tenant_id AND queue.name = p_queue
           AND (p_group IS NULL OR letter.consumer_group = p_group)
           AND letter.failed_at >= coalesce(p_from, '-infinity')
           AND letter.failed_at <= coalesce(p_to, 'infinity')
         LIMIT p_looks_max + 1
      ) AS looked;
END;
$$;
