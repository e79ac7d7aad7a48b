-- queen_timer_claim_v1: take due timers under a lease, to fire them.
--
-- Called by  brokers/store/timer_calls.py, timer_claim()
-- Reads      queen_timer, queen_timer_reclaim
-- Writes     queen_timer: claim_token and claimed_until; what deleted queues left is removed
-- Locks      timer rows that nobody holds (SKIP LOCKED), in any order. PostgreSQL waits all the
--            same for a row that was changed and is being changed again, in the moment
--            between: lock_timeout ends that before it can be half of a deadlock.
-- Cost       one descent a shard, and a write a timer.
-- Answers    the claimed timers in no order: their place (ctid), and what the fire needs.
-- Raises     55P03 in that moment: nothing was claimed, and the next cycle tries again.
--
-- Scans start at shard p_start, oldest first within a shard. At first no shard gives more
-- than half of the batch, so that a long backlog of one partition does not keep
-- the others waiting; what is missing is then taken wherever it is. A batch ends before its
-- payloads exceed p_bytes_max, but has at least one timer.
-- Due timers of a deleted queue are removed as they are met, and others are looked for in
-- their stead, a bounded number of times: the reclaim need not have come by.
-- Only our own clock says what is due: no broker's can fire a timer early.

CREATE OR REPLACE FUNCTION queen_timer_claim_v1(
    p_token     uuid,
    p_lease_ms  bigint,
    p_start     integer,
    p_limit     integer,
    p_bytes_max bigint
)
RETURNS TABLE (
    place tid, tenant_id uuid, queue text, partition text, txn text, message_id uuid,
    payload bytea, encrypted boolean, producer_sub text, attempts bigint, late_us bigint
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET lock_timeout = '200ms'
AS $$
#variable_conflict use_column
DECLARE
    v_now    timestamptz := clock_timestamp();
    v_share  integer;
    v_places tid[];
    v_dead   tid[];
BEGIN
    FOR v_round IN 1 .. 5 LOOP
        v_places := '{}';
        FOREACH v_share IN ARRAY ARRAY[greatest(p_limit / 2, 1), p_limit] LOOP
            v_places := v_places || ARRAY(
                SELECT due.ctid
                  FROM generate_series(p_start, p_start + 63) AS given(shard)
                 CROSS JOIN LATERAL (
                        SELECT timer.ctid FROM queen_timer timer
                         WHERE timer.shard = (given.shard & 63)::smallint
                           AND timer.visible_at <= v_now
                           AND timer.ctid <> ALL (v_places)
                         ORDER BY timer.visible_at
                         LIMIT v_share
                           FOR UPDATE SKIP LOCKED) AS due
                 LIMIT p_limit - cardinality(v_places));
            -- With less than one share in all, no shard had more to give.
            EXIT WHEN cardinality(v_places) < v_share OR cardinality(v_places) >= p_limit;
        END LOOP;
        EXIT WHEN NOT EXISTS (SELECT FROM queen_timer_reclaim);
        v_dead := ARRAY(
            SELECT timer.ctid
              FROM unnest(v_places) AS taken(place)
              JOIN queen_timer timer ON timer.ctid = taken.place
             WHERE timer.generation < coalesce((
                   SELECT gone.generation FROM queen_timer_reclaim gone
                    WHERE gone.tenant_id = timer.tenant_id AND gone.queue = timer.queue), 0));
        EXIT WHEN v_dead = '{}';
        DELETE FROM queen_timer timer WHERE timer.ctid = ANY (v_dead);
        v_places := ARRAY(SELECT place FROM unnest(v_places) place WHERE place <> ALL (v_dead));
        EXIT WHEN v_places <> '{}';
    END LOOP;
    IF v_places = '{}' THEN
        RETURN;
    END IF;

    v_places := ARRAY(
        SELECT sized.ctid
          FROM (
            SELECT timer.ctid, asked.no,
                   sum(octet_length(timer.payload)) OVER (ORDER BY asked.no) AS behind
              FROM unnest(v_places) WITH ORDINALITY AS asked(place, no)
              JOIN queen_timer timer ON timer.ctid = asked.place
          ) AS sized
         WHERE sized.behind <= p_bytes_max OR sized.no = 1);

    RETURN QUERY
    UPDATE queen_timer timer
       SET claim_token = p_token,
           claimed_until = clock_timestamp() + p_lease_ms * interval '1 millisecond'
     WHERE timer.ctid = ANY (v_places)
    RETURNING timer.ctid, timer.tenant_id, timer.queue, timer.partition, timer.txn,
              timer.message_id, timer.payload, timer.encrypted, timer.producer_sub,
              timer.attempts,
              (extract(epoch FROM v_now - timer.deliver_at) * 1000000)::bigint;
END;
$$;
