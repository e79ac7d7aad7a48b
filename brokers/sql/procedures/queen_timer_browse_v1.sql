-- queen_timer_browse_v1: a page of a tenant's pending timers by queue and key, without payloads.
--
-- Called by  brokers/store/timer_calls.py, timer_browse()
-- Reads      queen_timer, queen_timer_reclaim
-- Locks      nothing
-- Cost       p_limit index entries beside the place, and those that a delete has left there.
-- Answers    at most p_limit rows behind (p_at_queue, p_at_key), or with p_backward before it and
--            in the opposite order. A null p_at_queue is the end that the look starts from.
--
-- With p_queue only timers of that queue, and of them those whose keys begin with p_prefix.

CREATE OR REPLACE FUNCTION queen_timer_browse_v1(
    p_tenant_id uuid,
    p_queue     text,
    p_prefix    text,
    p_backward  boolean,
    p_at_queue  text,
    p_at_key    text,
    p_limit     integer
)
RETURNS TABLE (
    queue text, timer_key text, partition text, deliver_at timestamptz, txn text,
    message_id uuid, encrypted boolean, producer_sub text, attempts bigint, last_error text,
    claimed boolean, created_at timestamptz, updated_at timestamptz
)
LANGUAGE plpgsql
STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_sort = off
SET enable_incremental_sort = off
AS $$
#variable_conflict use_column
DECLARE
    v_of text := '';
BEGIN
    IF p_queue IS NOT NULL THEN
        v_of := ' AND timer.queue = $2 AND timer.timer_key >= $3 AND timer.timer_key < $4';
    END IF;
    IF p_at_queue IS NOT NULL THEN
        v_of := v_of || format(' AND (timer.queue, timer.timer_key) %s ($5, $6)',
                               CASE WHEN p_backward THEN '<' ELSE '>' END);
    END IF;
    RETURN QUERY EXECUTE format($statement$
        SELECT timer.queue, timer.timer_key, timer.partition, timer.deliver_at, timer.txn,
               timer.message_id, timer.encrypted OR timer.marked_encrypted, timer.producer_sub,
               timer.attempts, timer.last_error,
               timer.claim_token IS NOT NULL AND timer.claimed_until > clock_timestamp(),
               timer.created_at, timer.updated_at
          FROM queen_timer timer
         WHERE timer.tenant_id = $1 %1$s
           AND timer.generation >= coalesce((
               SELECT gone.generation FROM queen_timer_reclaim gone
                WHERE gone.tenant_id = timer.tenant_id AND gone.queue = timer.queue), 0)
         ORDER BY timer.queue %2$s, timer.timer_key %2$s
         LIMIT $7
        $statement$, v_of, CASE WHEN p_backward THEN 'DESC' ELSE 'ASC' END)
      USING p_tenant_id, p_queue, coalesce(p_prefix, ''),
            queen_prefix_end_v1(coalesce(p_prefix, '')), p_at_queue, p_at_key, p_limit;
END;
$$;
