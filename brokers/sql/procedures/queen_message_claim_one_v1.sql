-- queen_message_claim_one_v1: lease messages of one partition to one pop, the usual case at little
-- cost.
--
-- Called by  brokers/store/calls.py, message_claim()
-- Reads      queen_queue, queen_group, queen_partition, queen_segment
-- Writes     queen_cursor
-- Locks      the cursor's row; if somebody holds it, it is not waited for.
-- Cost       three small statements, without an array: a pop that a push has woken asks this.
-- Answers    rows as queen_message_claim_v1 does for one pop with one candidate.
--
-- Whatever is not usual is handed to queen_message_claim_v1 before anything is written or locked, and
-- decided there alone: no cursor yet, nothing to claim now, and a queue that delays, holds a
-- window, conflates, counts deliveries, enforces a ttl or is paused. So is what was deleted while it
-- was being leased: retention waits for no cursor, and each statement here sees what is there then.

CREATE OR REPLACE FUNCTION queen_message_claim_one_v1(
    p_group         text,
    p_batch         integer,
    p_lease_id      uuid,
    p_lease_s       integer,
    p_auto_ack      boolean,
    p_candidate     bigint,
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
    SELECT queue.id, queue.name, queue.lease_time, lane.uid, lane.name, lane.last_offset,
           greatest(place.committed, lane.log_start - 1)
      INTO v_queue_id, v_queue_name, v_lease_time, v_uid, v_name, v_last, v_floor
      FROM queen_cursor place
      JOIN queen_partition lane ON lane.id = place.partition_id
      JOIN queen_queue queue ON queue.id = lane.queue_id
      JOIN queen_group registered
        ON registered.queue_id = lane.queue_id
       AND registered.consumer_group = place.consumer_group
     WHERE place.partition_id = p_candidate AND place.consumer_group = p_group
       AND (place.retry_at IS NULL OR place.retry_at <= v_now)
       AND (place.lease_expires_at IS NULL OR place.lease_expires_at <= v_now)
       AND place.solo_until IS NULL
       AND lane.last_offset > greatest(place.committed, lane.log_start - 1)
       AND queue.delayed_processing = 0 AND queue.window_buffer = 0
       AND queue.max_deliveries = 0 AND NOT queue.paused
       AND NOT (queue.enforce AND queue.ttl > 0)
       AND NOT registered.conflation
       FOR UPDATE OF place SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN QUERY
        SELECT *
          FROM queen_message_claim_v1(
                   ARRAY[p_group], ARRAY[p_batch], ARRAY[1], ARRAY[p_lease_id], ARRAY[p_lease_s],
                   ARRAY[p_auto_ack], ARRAY[1], ARRAY[p_candidate], p_window_batch);
        RETURN;
    END IF;

    -- Losing a lease in a crash is a redelivery.
    IF NOT p_auto_ack THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;

    v_start := v_floor + 1;
    v_end := least(v_last, v_floor + p_batch);
    UPDATE queen_cursor place
       SET committed = CASE WHEN p_auto_ack THEN v_end ELSE place.committed END,
           total_consumed = place.total_consumed
               + CASE WHEN p_auto_ack THEN v_end - v_floor ELSE 0 END,
           batch_start = CASE WHEN NOT p_auto_ack THEN v_start END,
           batch_end = CASE WHEN NOT p_auto_ack THEN v_end END,
           lease_id = CASE WHEN NOT p_auto_ack THEN p_lease_id END,
           lease_expires_at = CASE WHEN NOT p_auto_ack THEN
               v_now + make_interval(secs => CASE WHEN p_lease_s > 0 THEN p_lease_s
                                                  WHEN v_lease_time > 0 THEN v_lease_time
                                                  ELSE 60 END) END,
           leased_at = v_now,
           retry_at = NULL,
           retry_offset = CASE WHEN NOT p_auto_ack THEN place.retry_offset END,
           retry_count = CASE WHEN p_auto_ack THEN 0 ELSE place.retry_count END,
           attempt_offset = CASE WHEN NOT p_auto_ack THEN v_start END,
           attempt_count = CASE WHEN p_auto_ack THEN 0
                                WHEN place.attempt_offset = v_start THEN place.attempt_count + 1
                                ELSE 1 END,
           expiry_count = CASE WHEN p_auto_ack OR place.attempt_offset IS DISTINCT FROM v_start
                               THEN 0
                               ELSE place.expiry_count + (place.lease_id IS NOT NULL)::integer
                          END
     WHERE place.partition_id = p_candidate AND place.consumer_group = p_group
    RETURNING greatest(place.attempt_count, 1) INTO v_attempt;

    RETURN QUERY
    SELECT 1, p_candidate, 'took', NULL::bigint, NULL::boolean, v_last, v_end, v_uid, v_name,
           v_queue_id, v_queue_name, v_attempt, span.first, span.created_us,
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
         WHERE segment.partition_id = p_candidate
           AND segment.base_offset BETWEEN coalesce(
                   (SELECT held.base_offset
                      FROM queen_segment held
                     WHERE held.partition_id = p_candidate AND held.base_offset <= v_start
                     ORDER BY held.base_offset DESC
                     LIMIT 1), v_start) AND v_end
         ORDER BY segment.base_offset
      ) AS span;
    IF NOT FOUND THEN
        -- A lease on nothing would hold up what comes behind it, and nobody would know of it.
        UPDATE queen_cursor place
           SET lease_id = NULL, lease_expires_at = NULL, batch_start = NULL, batch_end = NULL,
               attempt_offset = NULL, attempt_count = 0
         WHERE place.partition_id = p_candidate AND place.consumer_group = p_group;
        RETURN QUERY
        SELECT *
          FROM queen_message_claim_v1(
                   ARRAY[p_group], ARRAY[p_batch], ARRAY[1], ARRAY[p_lease_id], ARRAY[p_lease_s],
                   ARRAY[p_auto_ack], ARRAY[1], ARRAY[p_candidate], p_window_batch);
    END IF;
END;
$$;
