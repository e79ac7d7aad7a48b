-- queen_timer_count_v1: how many pending timers of a queue have keys that begin like this.
--
-- Called by  brokers/store/timer_calls.py, timer_count()
-- Reads      queen_timer, queen_timer_reclaim
-- Locks      nothing
-- Cost       the index range of the prefix up to p_count_max timers, and what a delete has left
--            there.
-- Answers    the count, p_count_max where there are more
--
-- The upper end is above every key of at most 512 bytes that begins with the prefix: 128
-- times the last code point are 512 bytes.

CREATE OR REPLACE FUNCTION queen_timer_count_v1(
    p_tenant_id uuid, p_queue text, p_prefix text, p_count_max integer
)
RETURNS bigint
LANGUAGE sql
STABLE
SET enable_seqscan = off
AS $$
    SELECT count(*)
      FROM (
        SELECT 1
          FROM queen_timer timer
         WHERE timer.tenant_id = p_tenant_id
           AND timer.queue = p_queue
           AND timer.timer_key >= p_prefix
           AND timer.generation >= coalesce((
               SELECT gone.generation FROM queen_timer_reclaim gone
                WHERE gone.tenant_id = p_tenant_id AND gone.queue = p_queue), 0)
           AND timer.timer_key <= p_prefix || repeat(chr(1114111), 128)
         LIMIT p_count_max
      ) AS pending
$$;
