-- queen_message_claim_few_v1: lease messages to few pops, of one partition each, the usual case at
-- little cost.
--
-- Called by  brokers/store/calls.py, message_claim()
-- Reads      queen_queue, queen_group, queen_partition, queen_segment
-- Writes     queen_cursor
-- Locks      cursor rows; those that somebody holds are not waited for.
-- Cost       three small statements a pop: up to some four pops that is much less than the general
--            procedure takes for one.
-- Answers    rows of verdict `took` as queen_message_claim_v1 does, for the pops that got messages.
--            When none did, what that procedure answers to all of them.
--
-- Looked at is the first candidate of each pop, and no other: one that is not usual may have waited
-- for longer than those behind it, and would be passed over again and again. Not usual are: no
-- cursor yet, nothing to claim now, a cursor that is held, and a queue that delays, holds a window,
-- conflates, counts deliveries, enforces a ttl or is paused; and what was deleted while it was being
-- leased, for retention waits for no cursor, and each statement here sees what is there then. Those
-- pops are for queen_message_claim_v1. That may wait for rows of groups, so it is only asked while
-- nothing is locked here: a pop without a row, beside those that have some, is asked for again by
-- the caller.

CREATE OR REPLACE FUNCTION queen_message_claim_few_v1(
    p_groups        text[],
    p_batches       integer[],
    p_lease_ids     uuid[],
    p_lease_s       integer[],
    p_auto_acks     boolean[],
    p_jobs          integer[],
    p_candidates    bigint[],
    p_window_batch  integer
)
RETURNS TABLE (
    job integer, partition_id bigint, verdict text, due_us bigint, leased boolean,
    last_offset bigint, batch_end bigint, partition_uid uuid, partition_name text,
    queue_id bigint, queue_name text, attempt bigint, base_offset bigint,
    created_us bigint, frames bytea, flags bytea
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_now        timestamptz := clock_timestamp();
    v_no         integer;
    v_job        integer;
    v_tried      integer := 0;
    v_touched    boolean := false;
    v_candidate  bigint;
    v_group      text;
    v_auto_ack   boolean;
    v_queue_id   bigint;
    v_queue_name text;
    v_lease_time bigint;
    v_uid        uuid;
    v_name       text;
    v_last       bigint;
    v_floor      bigint;
    v_start      bigint;
    v_end        bigint;
    v_attempt    bigint;
BEGIN
    FOR v_no IN 1 .. cardinality(p_jobs) LOOP
        v_job := p_jobs[v_no];
        CONTINUE WHEN v_job = v_tried;
        v_tried := v_job;
        v_candidate := p_candidates[v_no];
        v_group := p_groups[v_job];
        v_auto_ack := p_auto_acks[v_job];
        SELECT queue.id, queue.name, queue.lease_time, lane.uid, lane.name, lane.last_offset,
               greatest(place.committed, lane.log_start - 1)
          INTO v_queue_id, v_queue_name, v_lease_time, v_uid, v_name, v_last, v_floor
          FROM queen_cursor place
          JOIN queen_partition lane ON lane.id = place.partition_id
          JOIN queen_queue queue ON queue.id = lane.queue_id
          JOIN queen_group registered
            ON registered.queue_id = lane.queue_id
           AND registered.consumer_group = place.consumer_group
         WHERE place.partition_id = v_candidate AND place.consumer_group = v_group
           AND (place.retry_at IS NULL OR place.retry_at <= v_now)
           AND (place.lease_expires_at IS NULL OR place.lease_expires_at <= v_now)
           AND place.solo_until IS NULL
           AND lane.last_offset > greatest(place.committed, lane.log_start - 1)
           AND queue.delayed_processing = 0 AND queue.window_buffer = 0
           AND queue.max_deliveries = 0 AND NOT queue.paused
           AND NOT (queue.enforce AND queue.ttl > 0)
           AND NOT registered.conflation
           FOR UPDATE OF place SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;

        v_touched := true;
        v_start := v_floor + 1;
        v_end := least(v_last, v_floor + p_batches[v_job]);
        UPDATE queen_cursor place
           SET committed = CASE WHEN v_auto_ack THEN v_end ELSE place.committed END,
               total_consumed = place.total_consumed
                   + CASE WHEN v_auto_ack THEN v_end - v_floor ELSE 0 END,
               batch_start = CASE WHEN NOT v_auto_ack THEN v_start END,
               batch_end = CASE WHEN NOT v_auto_ack THEN v_end END,
               lease_id = CASE WHEN NOT v_auto_ack THEN p_lease_ids[v_job] END,
               lease_expires_at = CASE WHEN NOT v_auto_ack THEN
                   v_now + make_interval(secs =>
                       CASE WHEN p_lease_s[v_job] > 0 THEN p_lease_s[v_job]
                            WHEN v_lease_time > 0 THEN v_lease_time
                            ELSE 60 END) END,
               leased_at = v_now,
               retry_at = NULL,
               retry_offset = CASE WHEN NOT v_auto_ack THEN place.retry_offset END,
               retry_count = CASE WHEN v_auto_ack THEN 0 ELSE place.retry_count END,
               attempt_offset = CASE WHEN NOT v_auto_ack THEN v_start END,
               attempt_count = CASE WHEN v_auto_ack THEN 0
                                    WHEN place.attempt_offset = v_start THEN place.attempt_count + 1
                                    ELSE 1 END,
               expiry_count = CASE WHEN v_auto_ack OR place.attempt_offset IS DISTINCT FROM v_start
                                   THEN 0
                                   ELSE place.expiry_count + (place.lease_id IS NOT NULL)::integer
                              END
         WHERE place.partition_id = v_candidate AND place.consumer_group = v_group
        RETURNING greatest(place.attempt_count, 1) INTO v_attempt;

        RETURN QUERY
        SELECT v_job, v_candidate, 'took', NULL::bigint, NULL::boolean, v_last, v_end, v_uid,
               v_name, v_queue_id, v_queue_name, v_attempt, span.first, span.created_us,
               CASE WHEN span.first = span.base_offset AND span.last = span.end_offset
                    THEN span.frames
                    ELSE substr(span.frames, span.from_byte + 1,
                                queen_int4_at_v1(span.ends, span.last - span.base_offset)::integer
                                - span.from_byte)
               END,
               substr(span.flags, (span.first - span.base_offset + 1)::integer,
                      (span.last - span.first + 1)::integer)
          FROM (
            SELECT segment.base_offset, segment.end_offset, segment.frames, segment.ends,
                   segment.flags,
                   (extract(epoch FROM segment.created_at) * 1000000)::bigint AS created_us,
                   greatest(segment.base_offset, v_start) AS first,
                   least(segment.end_offset, v_end) AS last,
                   CASE WHEN segment.base_offset >= v_start THEN 0
                        ELSE queen_int4_at_v1(
                                 segment.ends, v_start - segment.base_offset - 1)::integer + 1
                   END AS from_byte
              FROM queen_segment segment
             WHERE segment.partition_id = v_candidate
               AND segment.base_offset BETWEEN coalesce(
                       (SELECT held.base_offset
                          FROM queen_segment held
                         WHERE held.partition_id = v_candidate AND held.base_offset <= v_start
                         ORDER BY held.base_offset DESC
                         LIMIT 1), v_start) AND v_end
             ORDER BY segment.base_offset
          ) AS span;
        IF NOT FOUND THEN
            -- A lease on nothing would hold up what comes behind it, and nobody would know of it.
            UPDATE queen_cursor place
               SET lease_id = NULL, lease_expires_at = NULL, batch_start = NULL, batch_end = NULL,
                   attempt_offset = NULL, attempt_count = 0
             WHERE place.partition_id = v_candidate AND place.consumer_group = v_group;
        END IF;
    END LOOP;

    IF NOT v_touched THEN
        RETURN QUERY
        SELECT *
          FROM queen_message_claim_v1(
                   p_groups, p_batches, array_fill(1, ARRAY[cardinality(p_groups)]), p_lease_ids,
                   p_lease_s, p_auto_acks, p_jobs, p_candidates, p_window_batch);
    ELSIF NOT true = ANY (p_auto_acks) THEN
        -- Losing a lease in a crash is a redelivery.
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
END;
$$;
