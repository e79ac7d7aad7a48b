-- queen_holding_step_v1: count a part of what one tenant has of a kind.
--
-- Called by  brokers/store/quota_calls.py, holding_step(), until nothing is due
-- Reads      queen_kv or queen_timer
-- Writes     queen_holding
-- Locks      the row of the tenant that was counted longest ago; none that another step holds
-- Cost       p_rows_max entries or timers, with a look at the row of each
-- Answers    false when nobody is due
--
-- A count that takes several steps keeps in its row how far it came, so that whoever leads next
-- goes on there. What is told meanwhile is the count before. It is no snapshot: what changes
-- behind the count while it goes on is seen by the next one.

CREATE OR REPLACE FUNCTION queen_holding_step_v1(
    p_kind text, p_every_ms bigint, p_rows_max integer
)
RETURNS boolean
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    v_now    constant timestamptz := clock_timestamp();
    v_held   queen_holding%ROWTYPE;
    v_first  text;
    v_second text;
    v_rows   bigint;
    v_bytes  bigint;
BEGIN
    SELECT * INTO v_held
      FROM queen_holding held
     WHERE held.kind = p_kind
       AND (held.counted_at IS NULL
            OR held.counted_at < v_now - p_every_ms * interval '1 millisecond')
     ORDER BY held.counted_at NULLS FIRST, held.tenant_id
     LIMIT 1
       FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);

    -- Where this step ends; nowhere when it reaches the last of them.
    IF p_kind = 'kv' THEN
        SELECT entry.ns, entry.key INTO v_first, v_second
          FROM queen_kv entry
         WHERE entry.tenant_id = v_held.tenant_id
           AND (entry.ns, entry.key) > (v_held.place_first, v_held.place_second)
         ORDER BY entry.ns, entry.key
        OFFSET p_rows_max - 1 LIMIT 1;
        SELECT count(*), coalesce(sum(octet_length(live.ns) + octet_length(live.key)
                                      + octet_length(live.value)), 0)
          INTO v_rows, v_bytes
          FROM (
            SELECT entry.ns, entry.key, entry.value, entry.version, entry.expires_at
              FROM queen_kv entry
             WHERE entry.tenant_id = v_held.tenant_id
               AND (entry.ns, entry.key) > (v_held.place_first, v_held.place_second)
             ORDER BY entry.ns, entry.key
             LIMIT p_rows_max
          ) AS live
         WHERE live.version > 0 AND (live.expires_at IS NULL OR live.expires_at > v_now);
    ELSE
        SELECT timer.queue, timer.timer_key INTO v_first, v_second
          FROM queen_timer timer
         WHERE timer.tenant_id = v_held.tenant_id
           AND (timer.queue, timer.timer_key) > (v_held.place_first, v_held.place_second)
         ORDER BY timer.queue, timer.timer_key
        OFFSET p_rows_max - 1 LIMIT 1;
        SELECT count(*), coalesce(sum(octet_length(held.queue) + octet_length(held.timer_key)
                                      + octet_length(held.txn) + octet_length(held.payload)), 0)
          INTO v_rows, v_bytes
          FROM (
            SELECT timer.queue, timer.timer_key, timer.txn, timer.payload
              FROM queen_timer timer
             WHERE timer.tenant_id = v_held.tenant_id
               AND (timer.queue, timer.timer_key) > (v_held.place_first, v_held.place_second)
             ORDER BY timer.queue, timer.timer_key
             LIMIT p_rows_max
          ) AS held;
    END IF;

    v_rows := v_rows + v_held.seen_rows;
    v_bytes := v_bytes + v_held.seen_bytes;
    IF v_first IS NOT NULL THEN
        UPDATE queen_holding
           SET place_first = v_first, place_second = v_second,
               seen_rows = v_rows, seen_bytes = v_bytes
         WHERE tenant_id = v_held.tenant_id AND kind = p_kind;
    ELSIF v_rows = 0 THEN
        DELETE FROM queen_holding WHERE tenant_id = v_held.tenant_id AND kind = p_kind;
    ELSE
        UPDATE queen_holding
           SET rows = v_rows, bytes = v_bytes, counted_at = clock_timestamp(),
               place_first = '', place_second = '', seen_rows = 0, seen_bytes = 0
         WHERE tenant_id = v_held.tenant_id AND kind = p_kind;
    END IF;
    RETURN true;
END;
$$;
