-- queen_timer_held_v1: which of these claimed timers are still the claim's.
--
-- Called by  brokers/store/timer_calls.py, timer_held(), before a fire makes a partition
-- Reads      queen_timer, queen_timer_reclaim
-- Locks      nothing: the fire decides under its locks
-- Cost       two probes a timer.
-- Answers    their positions, from 1.

CREATE OR REPLACE FUNCTION queen_timer_held_v1(p_token uuid, p_places tid[])
RETURNS integer[]
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
BEGIN
    RETURN ARRAY(
        SELECT asked.no::integer
          FROM unnest(p_places) WITH ORDINALITY AS asked(place, no)
          JOIN queen_timer timer ON timer.ctid = asked.place
         WHERE timer.claim_token = p_token
           AND NOT EXISTS (
               SELECT FROM queen_timer_reclaim gone
                WHERE gone.tenant_id = timer.tenant_id AND gone.queue = timer.queue
                  AND gone.generation > timer.generation));
END;
$$;
