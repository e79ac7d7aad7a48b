-- queen_timer_peek_v1: one pending timer with its payload.
--
-- Called by  brokers/store/timer_calls.py, timer_peek()
-- Reads      queen_timer, queen_timer_reclaim
-- Locks      nothing
-- Cost       one index probe.
-- Answers    one row or none.

CREATE OR REPLACE FUNCTION queen_timer_peek_v1(p_tenant_id uuid, p_queue text, p_key text)
RETURNS TABLE (
    timer_key text, partition text, deliver_at timestamptz, txn text, message_id uuid,
    encrypted boolean, producer_sub text, attempts bigint, last_error text, claimed boolean,
    created_at timestamptz, updated_at timestamptz, payload bytea
)
LANGUAGE sql
STABLE
SET enable_seqscan = off
AS $$
    SELECT timer.timer_key, timer.partition, timer.deliver_at, timer.txn, timer.message_id,
           timer.encrypted OR timer.marked_encrypted, timer.producer_sub, timer.attempts, timer.last_error,
           timer.claim_token IS NOT NULL AND timer.claimed_until > clock_timestamp(),
           timer.created_at, timer.updated_at, timer.payload
      FROM queen_timer timer
     WHERE timer.tenant_id = p_tenant_id
       AND timer.queue = p_queue
       AND timer.generation >= coalesce((
           SELECT gone.generation FROM queen_timer_reclaim gone
            WHERE gone.tenant_id = p_tenant_id AND gone.queue = p_queue), 0)
       AND timer.timer_key = p_key
$$;
