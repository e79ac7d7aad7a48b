-- queen_timer_fire_v1: append claimed timers to their partitions and delete them, in one.
--
-- Called by  brokers/store/timer_calls.py, timer_fire()
-- Reads      what queen_message_push_v1 reads; queen_timer_reclaim
-- Writes     what it writes; queen_timer
-- Locks      timer rows by (tenant, queue, key), then what queen_message_push_v1 locks: the
--            partition rows in ascending id, skipping those that others hold.
-- Cost       one push call, whatever the number of partitions; a delete a timer.
-- Answers    one row per group, as queen_message_push_v1: stored (its timers are gone), stale
--            or busy (they are still claimed). Or one row with group_no 0, `short` and the
--            positions (from 1) of the timers that are still held, when some are not:
--            nothing was done then.
-- Raises     QN011 when a delete finds fewer timers than were locked, which cannot be
--
-- p_token is the claim's: one that ran out and was taken by another broker, or a timer that
-- was rescheduled or cancelled behind it, is not held any more, so no timer enters the log
-- twice. Neither is one whose queue was deleted held. That needs no lock: partition ids that
-- were looked up before the delete name nothing any more, and those of the next queue of that
-- name were looked up after it, so that we see it.
-- A group holds the frames of the timers that p_groups assigns to it.
-- A fire does not ask the dedup window: a timer is its own proof that it was not delivered.

CREATE OR REPLACE FUNCTION queen_timer_fire_v1(
    p_token         uuid,
    p_places        tid[],
    p_groups        integer[],
    p_partition_ids bigint[],
    p_queue_ids     bigint[],
    p_versions      bigint[],
    p_frames        bytea[],
    p_ends          bytea[],
    p_transactions  text[],
    p_flags         bytea[],
    p_first_ids     uuid[],
    p_last_ids      uuid[],
    p_wait_ms       integer
)
RETURNS TABLE (group_no integer, verdict text, held integer[])
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_held   integer[];
    v_push   record;
    v_stored integer[] := '{}';
    v_gone   tid[];
    v_count  bigint;
BEGIN
    v_held := ARRAY(
        SELECT asked.no::integer
          FROM unnest(p_places) WITH ORDINALITY AS asked(place, no)
          JOIN queen_timer timer ON timer.ctid = asked.place
         WHERE timer.claim_token = p_token
           AND NOT EXISTS (
               SELECT FROM queen_timer_reclaim gone
                WHERE gone.tenant_id = timer.tenant_id AND gone.queue = timer.queue
                  AND gone.generation > timer.generation)
         ORDER BY timer.tenant_id, timer.queue, timer.timer_key
           FOR UPDATE OF timer);
    IF cardinality(v_held) < cardinality(p_places) THEN
        group_no := 0;
        verdict := 'short';
        held := v_held;
        RETURN NEXT;
        RETURN;
    END IF;

    FOR v_push IN
        SELECT pushed.group_no, pushed.verdict
          FROM queen_message_push_v1(
                   p_partition_ids, p_queue_ids, p_versions, p_frames, p_ends, p_transactions,
                   p_flags, p_first_ids, p_last_ids, p_wait_ms, false,
                   NULL) AS pushed
    LOOP
        group_no := v_push.group_no;
        verdict := v_push.verdict;
        IF verdict = 'stored' THEN
            v_stored := v_stored || group_no;
        END IF;
        RETURN NEXT;
    END LOOP;

    v_gone := ARRAY(
        SELECT asked.place
          FROM unnest(p_places, p_groups) AS asked(place, group_no)
         WHERE asked.group_no = ANY (v_stored));
    DELETE FROM queen_timer timer WHERE timer.ctid = ANY (v_gone) AND timer.claim_token = p_token;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    IF v_count <> cardinality(v_gone) THEN
        RAISE EXCEPTION 'timers left while they were locked: % of %', v_count, cardinality(v_gone)
            USING ERRCODE = 'QN011';
    END IF;
END;
$$;
