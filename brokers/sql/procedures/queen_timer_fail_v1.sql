-- queen_timer_fail_v1: let claimed timers wait after a fire that failed, or give one up.
--
-- Called by  brokers/store/timer_calls.py, timer_fail()
-- Reads      queen_timer, queen_partition, queen_timer_reclaim
-- Writes     queen_timer; queen_dead_letter
-- Locks      timer rows by (tenant, queue, key), then partition rows in ascending id.
-- Cost       a write a timer.
-- Answers    one row per timer that was still held: its position (from 1), whether it was
--            dead-lettered, and its attempts.
--
-- Without p_error the failure was transient: nothing is counted, the timers are due again
-- after p_backoff_min_ms. With it each is charged an attempt; below p_attempts_max it
-- backs off, doubling up to p_backoff_max_ms; at it, and with a partition given, it becomes
-- a dead letter of the group `__timer__`. A timer that backs off has no token, so that it
-- can be cancelled.
--
-- A dead letter is addressed by a partition and an offset. This message never had an
-- offset, so it gets one below zero that no other of the group has: the partition's row is
-- held while it is chosen. One whose queue was deleted is nobody's, as in the fire.

CREATE OR REPLACE FUNCTION queen_timer_fail_v1(
    p_token          uuid,
    p_places         tid[],
    p_partition_ids  bigint[],
    p_error          text,
    p_backoff_min_ms bigint,
    p_backoff_max_ms bigint,
    p_attempts_max   integer
)
RETURNS TABLE (place_no integer, dead boolean, attempts bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_one  record;
    v_held tid[];
BEGIN
    v_held := ARRAY(
        SELECT timer.ctid
          FROM unnest(p_places) AS asked(place)
          JOIN queen_timer timer ON timer.ctid = asked.place
         WHERE timer.claim_token = p_token
           AND NOT EXISTS (
               SELECT FROM queen_timer_reclaim gone
                WHERE gone.tenant_id = timer.tenant_id AND gone.queue = timer.queue
                  AND gone.generation > timer.generation)
         ORDER BY timer.tenant_id, timer.queue, timer.timer_key
           FOR UPDATE OF timer);
    PERFORM 1
       FROM queen_partition lane
      WHERE lane.id = ANY (p_partition_ids)
      ORDER BY lane.id
        FOR UPDATE;

    FOR v_one IN
        SELECT asked.no::integer AS no, timer.*, timer.ctid AS place,
               lane.id AS partition_id, lane.queue_id,
               timer.attempts + (p_error IS NOT NULL)::integer AS attempts_now
          FROM unnest(p_places, p_partition_ids) WITH ORDINALITY
               AS asked(place, partition_id, no)
          JOIN unnest(v_held) AS mine(place) ON mine.place = asked.place
          JOIN queen_timer timer ON timer.ctid = asked.place
          LEFT JOIN queen_partition lane ON lane.id = asked.partition_id
    LOOP
        place_no := v_one.no;
        attempts := v_one.attempts_now;
        dead := p_error IS NOT NULL AND attempts >= p_attempts_max
                AND v_one.partition_id IS NOT NULL;
        IF dead THEN
            INSERT INTO queen_dead_letter (
                   tenant_id, queue_id, partition_id, consumer_group, message_offset, message_id, transaction_id,
                   transaction_hash, payload, encrypted, producer_sub, error, retry_count,
                   failed_at)
            SELECT v_one.tenant_id, v_one.queue_id, v_one.partition_id, '__timer__',
                   least(coalesce(min(letter.message_offset), 0), 0) - 1,
                   v_one.message_id, v_one.txn, hashtextextended(v_one.txn, 0), v_one.payload,
                   v_one.encrypted, v_one.producer_sub, p_error, v_one.attempts_now, clock_timestamp()
              FROM queen_dead_letter letter
             WHERE letter.partition_id = v_one.partition_id
               AND letter.consumer_group = '__timer__';
            DELETE FROM queen_timer timer WHERE timer.ctid = v_one.place;
        ELSE
            UPDATE queen_timer timer
               SET claim_token = NULL,
                   claimed_until = clock_timestamp() + interval '1 millisecond' * least(
                       p_backoff_max_ms,
                       p_backoff_min_ms * 2 ^ CASE WHEN p_error IS NULL THEN 0
                           ELSE least(v_one.attempts_now - 1, 30) END),
                   attempts = v_one.attempts_now,
                   last_error = coalesce(p_error, timer.last_error)
             WHERE timer.ctid = v_one.place;
        END IF;
        RETURN NEXT;
    END LOOP;
END;
$$;
