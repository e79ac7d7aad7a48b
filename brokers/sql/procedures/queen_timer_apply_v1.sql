-- queen_timer_apply_v1: schedule, reschedule and cancel a batch of timers of one tenant.
--
-- Called by  brokers/store/timer_calls.py, timer_apply(); queen_transaction_commit_v1
-- Reads      queen_queue (whether one that gets a timer encrypts), queen_timer_reclaim
-- Writes     queen_timer; for a metered tenant queen_usage, queen_usage_delta
-- Locks      timer rows by (queue, key), one after the other, inserts included: who comes
--            second to a key that is new to both waits at the index for the first. So
--            absent keys have their place in the order too, and nothing can deadlock. Then,
--            for a metered tenant that adds, its usage row.
-- Cost       one probe and one write an operation; at most 256 operations a call.
-- Answers    one row per operation, numbered as asked from 1:
--              scheduled | rescheduled  with the message's id and when it is due
--              cancelled | absent
--              too_late  a broker holds the claim: nothing was changed
-- Raises     QN010 when a queue that gets a timer encrypts and the payload is not encrypted, or
--            the other way round (DETAIL: the names of those that encrypt, as JSON)
--            QN032 when a metered tenant would have more timers than its quota
--
-- p_encrypted says of which payloads the broker made an envelope, p_marked of which their
-- caller says that it encrypted them: that is kept and shown, and counts for nothing else.
-- p_delays is null where an operation cancels. The delay counts from one instant of our
-- clock for the whole batch; whether a claim has run out is judged after the row's lock.
-- A key stands once in a batch. p_txns holds canonical literals.
--
-- What a deleted queue left under a key is not there, claimed or not: it makes way. The
-- transaction gets its id before it looks which deletes there were, so that the reclaim knows
-- when nobody can still add to what was deleted.

CREATE OR REPLACE FUNCTION queen_timer_apply_v1(
    p_tenant_id  uuid,
    p_queues     text[],
    p_keys       text[],
    p_partitions text[],
    p_delays     bigint[],
    p_txns       text[],
    p_payloads   bytea[],
    p_encrypted  boolean[],
    p_marked     boolean[],
    p_producer   text
)
RETURNS TABLE (operation_no integer, status text, message_id uuid, deliver_at timestamptz)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now    timestamptz := clock_timestamp();
    v_one    record;
    v_new    boolean;
    v_secret text[];
    v_added  bigint := 0;
BEGIN
    PERFORM pg_current_xact_id();
    v_secret := ARRAY(
        SELECT queue.name
          FROM queen_queue queue
         WHERE queue.tenant_id = p_tenant_id
           AND queue.name = ANY (p_queues)
           AND queue.encryption_enabled);
    IF EXISTS (
        SELECT FROM unnest(p_queues, p_delays, p_encrypted) AS asked(name, delay, encrypted)
         WHERE asked.delay IS NOT NULL
           AND asked.encrypted <> (asked.name = ANY (v_secret)))
    THEN
        RAISE EXCEPTION 'a queue encrypts its messages and a payload is plain, or the reverse'
            USING ERRCODE = 'QN010', DETAIL = to_jsonb(v_secret)::text;
    END IF;

    FOR v_one IN
        SELECT asked.*,
               coalesce((SELECT gone.generation FROM queen_timer_reclaim gone
                          WHERE gone.tenant_id = p_tenant_id AND gone.queue = asked.queue),
                        0) AS floor
          FROM unnest(p_queues, p_keys, p_partitions, p_delays, p_txns, p_payloads, p_encrypted,
                      p_marked)
               WITH ORDINALITY
               AS asked(queue, timer_key, lane, delay, txn, payload, encrypted, marked, no)
         ORDER BY asked.queue COLLATE "C", asked.timer_key COLLATE "C"
    LOOP
        operation_no := v_one.no;
        message_id := NULL;
        deliver_at := NULL;
        IF v_one.delay IS NULL THEN
            DELETE FROM queen_timer timer
             WHERE timer.tenant_id = p_tenant_id
               AND timer.queue = v_one.queue
               AND timer.timer_key = v_one.timer_key
               AND timer.generation >= v_one.floor
               AND (timer.claim_token IS NULL OR timer.claimed_until <= clock_timestamp());
            IF FOUND THEN
                status := 'cancelled';
            ELSE
                status := CASE WHEN EXISTS (
                    SELECT FROM queen_timer timer
                     WHERE timer.tenant_id = p_tenant_id
                       AND timer.queue = v_one.queue
                       AND timer.timer_key = v_one.timer_key
                       AND timer.generation >= v_one.floor
                       AND timer.claim_token IS NOT NULL) THEN 'too_late' ELSE 'absent' END;
            END IF;
            RETURN NEXT;
            CONTINUE;
        END IF;

        IF v_one.floor > 0 THEN
            DELETE FROM queen_timer timer
             WHERE timer.tenant_id = p_tenant_id
               AND timer.queue = v_one.queue
               AND timer.timer_key = v_one.timer_key
               AND timer.generation < v_one.floor;
        END IF;
        deliver_at := v_now + v_one.delay * interval '1 millisecond';
        message_id := queen_message_id_at_v1(deliver_at, v_one.no::integer);
        INSERT INTO queen_timer AS timer (
                   tenant_id, queue, timer_key, partition, deliver_at, txn, message_id, payload,
                   encrypted, marked_encrypted, producer_sub, shard, generation, created_at,
                   updated_at)
        VALUES (p_tenant_id, v_one.queue, v_one.timer_key, v_one.lane, deliver_at, v_one.txn,
                message_id, v_one.payload, v_one.encrypted, v_one.marked, p_producer,
                hashtextextended(v_one.queue || chr(30) || v_one.lane,
                                 hashtextextended(p_tenant_id::text, 0)) & 63,
                v_one.floor, v_now, v_now)
        ON CONFLICT (tenant_id, queue, timer_key) DO UPDATE
           SET partition = excluded.partition, deliver_at = excluded.deliver_at,
               txn = excluded.txn, message_id = excluded.message_id,
               payload = excluded.payload, encrypted = excluded.encrypted,
               marked_encrypted = excluded.marked_encrypted,
               producer_sub = excluded.producer_sub, shard = excluded.shard,
               -- Who met a timer of after a delete comes after the delete.
               generation = greatest(timer.generation, excluded.generation),
               attempts = 0, last_error = NULL, claimed_until = NULL, claim_token = NULL,
               updated_at = excluded.updated_at
         WHERE timer.claim_token IS NULL OR timer.claimed_until <= clock_timestamp()
        RETURNING timer.xmax = 0 INTO v_new;
        IF v_new IS NULL THEN
            status := 'too_late';
            message_id := NULL;
            deliver_at := NULL;
        ELSE
            status := CASE WHEN v_new THEN 'scheduled' ELSE 'rescheduled' END;
            v_added := v_added + v_new::integer;
        END IF;
        RETURN NEXT;
    END LOOP;

    -- What goes is told by the table itself (a trigger).
    IF v_added > 0 AND p_tenant_id <> '00000000-0000-0000-0000-000000000001' AND EXISTS (
        SELECT FROM queen_quota quota
         WHERE quota.tenant_id = p_tenant_id AND quota.max_timers IS NOT NULL)
    THEN
        PERFORM queen_usage_add_v1(p_tenant_id, 'timers', v_added, 0);
    END IF;
END;
$$;
