-- queen_timer_list_v1: a page of a queue's pending timers in key order, without payloads.
--
-- Called by  brokers/store/timer_calls.py, timer_list()
-- Reads      queen_timer, queen_timer_reclaim
-- Locks      nothing
-- Cost       p_limit index entries behind p_after, and those that a delete has left there.
-- Answers    at most p_limit rows by the bytes of their keys. A null p_after is the start.

CREATE OR REPLACE FUNCTION queen_timer_list_v1(
    p_tenant_id uuid, p_queue text, p_after text, p_limit integer
)
RETURNS TABLE (
    timer_key text, partition text, deliver_at timestamptz, txn text, message_id uuid,
    encrypted boolean, producer_sub text, attempts bigint, last_error text, claimed boolean,
    created_at timestamptz, updated_at timestamptz
)
LANGUAGE sql
STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
    SELECT timer.timer_key, timer.partition, timer.deliver_at, timer.txn, timer.message_id,
           timer.encrypted OR timer.marked_encrypted, timer.producer_sub, timer.attempts, timer.last_error,
           timer.claim_token IS NOT NULL AND timer.claimed_until > clock_timestamp(),
           timer.created_at, timer.updated_at
      FROM queen_timer timer
     WHERE timer.tenant_id = p_tenant_id
       AND timer.queue = p_queue
       AND timer.generation >= coalesce((
           SELECT gone.generation FROM queen_timer_reclaim gone
            WHERE gone.tenant_id = p_tenant_id AND gone.queue = p_queue), 0)
       -- No key is empty, so all of them lie behind the empty one.
       AND timer.timer_key > coalesce(p_after, '')
     ORDER BY timer.timer_key
     LIMIT p_limit
$$;
