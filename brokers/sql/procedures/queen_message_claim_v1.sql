-- queen_message_claim_v1: lease messages to several pops at once, each from its candidates.
--
-- Called by  brokers/store/calls.py, message_claim(); queen_message_claim_few_v1
-- Reads      queen_queue, queen_group, queen_partition, queen_segment
-- Writes     queen_cursor (and queen_dead_letter through queen_delivery_limit_v1)
-- Locks      rarely first: group rows (key share) and new cursor rows in ascending
--            (partition, group). Then cursor rows, skipping those held by others: it never
--            waits while it holds an old one.
-- Cost       three statements whatever the number of pops and candidates, plus two when a
--            cursor must be created.
-- Answers    rows of one of these verdicts for each candidate that was looked at:
--              took          one row per slice of a segment, in offset order; last_offset
--                            tells how far the partition reaches, deferred messages too
--              empty         nothing beyond the cursor
--              until         leased, deferred or put off by a nack for due_us microseconds more
--              busy          claimable but not claimed: its cursor is locked by somebody, or
--                            the pop had enough without it
--              paused        its queue is paused: nothing is claimed from it
--              gone          no such partition: its queue was deleted
--              unregistered  the group has no subscription to the queue: register, repeat
--
-- One live lease per (partition, group) is what makes order: a cursor whose lease is live
-- is never claimed. A lease-only claim commits asynchronously: losing it in a crash is a
-- redelivery. A claim that commits (auto-ack), creates a cursor or sets a message aside is
-- synchronous, as losing that would skip messages.
-- p_batches are budgets across partitions; candidates are taken in the order given.
-- Where a queue enforces its ttl, what is older counts as gone: the log begins behind it.

CREATE OR REPLACE FUNCTION queen_message_claim_v1(
    p_groups         text[],
    p_batches        integer[],
    p_lanes          integer[],
    p_lease_ids      uuid[],
    p_lease_s        integer[],
    p_auto_acks      boolean[],
    p_jobs           integer[],
    p_candidates     bigint[],
    p_window_batch   integer
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
    v_now     timestamptz;
    v_missing bigint[];
    v_limited boolean;
    v_durable boolean := true = ANY (p_auto_acks);
BEGIN
    SELECT array_agg(candidate.partition_id ORDER BY candidate.partition_id)
               FILTER (WHERE place.partition_id IS NULL AND lane.last_offset >= lane.log_start),
           coalesce(bool_or(queue.max_deliveries > 0 AND place.lease_id IS NOT NULL
                            AND NOT queue.paused), false)
      INTO v_missing, v_limited
      FROM unnest(p_jobs, p_candidates) AS candidate(job, partition_id)
      JOIN queen_partition lane ON lane.id = candidate.partition_id
      JOIN queen_queue queue ON queue.id = lane.queue_id
      JOIN queen_group registered
        ON registered.queue_id = lane.queue_id
       AND registered.consumer_group = p_groups[candidate.job]
      LEFT JOIN queen_cursor place
             ON place.partition_id = candidate.partition_id
            AND place.consumer_group = p_groups[candidate.job];

    IF v_missing IS NOT NULL THEN
        -- The subscription is held while cursors are born: a group that is deleted in
        -- between must not leave one behind for the next group of that name.
        PERFORM 1
           FROM queen_group registered
          WHERE (registered.queue_id, registered.consumer_group) IN (
                SELECT lane.queue_id, p_groups[candidate.job]
                  FROM unnest(p_jobs, p_candidates) AS candidate(job, partition_id)
                  JOIN queen_partition lane ON lane.id = candidate.partition_id)
          ORDER BY registered.id
            FOR KEY SHARE;
        -- Born late, a cursor begins where the subscription starts; mostly that is the oldest.
        INSERT INTO queen_cursor (partition_id, consumer_group, committed)
        SELECT DISTINCT lane.id, registered.consumer_group,
               CASE WHEN registered.start_at IS NULL THEN -1
                    ELSE coalesce(queen_segment_since_v1(lane.id, registered.start_at) - 1,
                                  lane.last_offset) END
          FROM unnest(p_jobs, p_candidates) AS candidate(job, partition_id)
          JOIN queen_partition lane
            ON lane.id = candidate.partition_id
          JOIN queen_group registered
            ON registered.queue_id = lane.queue_id
           AND registered.consumer_group = p_groups[candidate.job]
         WHERE candidate.partition_id = ANY (v_missing)
         ORDER BY lane.id, registered.consumer_group
        ON CONFLICT DO NOTHING;
        v_durable := true;
    END IF;

    IF v_limited THEN
        IF queen_delivery_limit_v1(
               p_candidates, ARRAY(SELECT p_groups[job] FROM unnest(p_jobs) AS job)) > 0 THEN
            v_durable := true;
        END IF;
    END IF;

    IF NOT v_durable THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;

    v_now := clock_timestamp();

    RETURN QUERY
    WITH candidate AS MATERIALIZED (
        -- A partition is claimed once a call, whoever asks twice.
        SELECT DISTINCT ON (asked.partition_id, p_groups[asked.job])
               asked.job, asked.partition_id, asked.no, p_groups[asked.job] AS consumer_group
          FROM unnest(p_jobs, p_candidates) WITH ORDINALITY AS asked(job, partition_id, no)
         ORDER BY asked.partition_id, p_groups[asked.job], asked.no
    ), looked AS MATERIALIZED (
        SELECT candidate.*, lane.id AS lane_id, lane.queue_id, lane.uid, lane.name AS lane_name, lane.last_offset,
               CASE WHEN queue.enforce AND queue.ttl > 0
                    THEN queen_log_start_v1(lane.id, lane.log_start, lane.last_offset,
                             lane.oldest_live_at,
                             v_now - make_interval(secs => least(queue.ttl, 3153600000)))
                    ELSE lane.log_start END AS log_start,
               queue.paused, queue.name AS queue_name, queue.lease_time,
               queue.delayed_processing, queue.window_buffer, queue.max_deliveries,
               registered.id AS group_id, registered.conflation
          FROM candidate
          LEFT JOIN queen_partition lane ON lane.id = candidate.partition_id
          LEFT JOIN queen_queue queue ON queue.id = lane.queue_id
          LEFT JOIN queen_group registered
                 ON registered.queue_id = lane.queue_id
                AND registered.consumer_group = candidate.consumer_group
    ), locked AS MATERIALIZED (
        SELECT taken.*
          FROM (SELECT DISTINCT looked.job FROM looked) AS pop
         CROSS JOIN LATERAL (
            SELECT looked.*, place.attempt_offset, place.attempt_count, place.solo_until,
                   greatest(place.committed, looked.log_start - 1) AS floor
              FROM looked
              JOIN queen_cursor place
                ON place.partition_id = looked.partition_id
               AND place.consumer_group = looked.consumer_group
             WHERE looked.job = pop.job AND looked.group_id IS NOT NULL AND NOT looked.paused
               AND (place.retry_at IS NULL OR place.retry_at <= v_now)
               AND (place.lease_expires_at IS NULL OR place.lease_expires_at <= v_now)
               AND looked.last_offset > greatest(place.committed, looked.log_start - 1)
               AND (looked.delayed_processing = 0 AND looked.window_buffer = 0
                    OR queen_visible_end_v1(
                           looked.partition_id, greatest(place.committed, looked.log_start - 1),
                           looked.last_offset, v_now, looked.delayed_processing,
                           looked.window_buffer, p_window_batch, p_batches[looked.job],
                           looked.conflation)
                       > greatest(place.committed, looked.log_start - 1))
             ORDER BY looked.no
             LIMIT p_lanes[pop.job]
               FOR UPDATE OF place SKIP LOCKED
         ) AS taken
    ), visible AS (
        SELECT locked.*,
               CASE WHEN locked.delayed_processing = 0 AND locked.window_buffer = 0
                    THEN locked.last_offset
                    ELSE queen_visible_end_v1(
                             locked.partition_id, locked.floor, locked.last_offset, v_now,
                             locked.delayed_processing, locked.window_buffer, p_window_batch,
                             p_batches[locked.job], locked.conflation)
               END AS visible_end
          FROM locked
    ), offered AS (
        SELECT visible.*,
               CASE WHEN visible.conflation OR visible.max_deliveries = 1
                      OR visible.solo_until > visible.floor THEN 1
                    ELSE visible.visible_end - visible.floor
               END AS available
          FROM visible
    ), planned AS (
        SELECT offered.*,
               p_batches[offered.job]
               - (sum(offered.available) OVER (PARTITION BY offered.job ORDER BY offered.no)
                  - offered.available) AS budget
          FROM offered
    ), claim AS MATERIALIZED (
        SELECT planned.*,
               CASE WHEN planned.conflation THEN planned.visible_end
                    ELSE planned.floor + 1 END AS batch_start,
               CASE WHEN planned.conflation THEN planned.visible_end
                    ELSE planned.floor + least(planned.available, planned.budget)::bigint
               END AS batch_end
          FROM planned
         WHERE planned.budget > 0
    ), updated AS (
        UPDATE queen_cursor place
           SET committed = CASE WHEN p_auto_acks[claim.job] THEN claim.batch_end
                                ELSE place.committed END,
               total_consumed = place.total_consumed
                   + CASE WHEN p_auto_acks[claim.job] THEN claim.batch_end - claim.floor ELSE 0 END,
               batch_start = CASE WHEN p_auto_acks[claim.job] THEN NULL ELSE claim.batch_start END,
               batch_end = CASE WHEN p_auto_acks[claim.job] THEN NULL ELSE claim.batch_end END,
               lease_id = CASE WHEN p_auto_acks[claim.job] THEN NULL
                               ELSE p_lease_ids[claim.job] END,
               lease_expires_at = CASE WHEN p_auto_acks[claim.job] THEN NULL
                   ELSE v_now + make_interval(secs =>
                        CASE WHEN p_lease_s[claim.job] > 0 THEN p_lease_s[claim.job]
                             WHEN claim.lease_time > 0 THEN claim.lease_time
                             ELSE 60 END) END,
               leased_at = v_now,
               retry_at = NULL,
               retry_offset = CASE WHEN p_auto_acks[claim.job] THEN NULL ELSE place.retry_offset END,
               retry_count = CASE WHEN p_auto_acks[claim.job] THEN 0 ELSE place.retry_count END,
               attempt_offset = CASE WHEN p_auto_acks[claim.job] THEN NULL
                                     ELSE claim.batch_start END,
               attempt_count = CASE WHEN p_auto_acks[claim.job] THEN 0
                                    WHEN place.attempt_offset = claim.batch_start
                                    THEN place.attempt_count + 1 ELSE 1 END,
               expiry_count = CASE WHEN p_auto_acks[claim.job]
                                     OR place.attempt_offset IS DISTINCT FROM claim.batch_start
                                   THEN 0
                                   ELSE place.expiry_count + (place.lease_id IS NOT NULL)::integer
                              END,
               solo_until = CASE WHEN place.solo_until > claim.floor THEN place.solo_until END
          FROM claim
         WHERE place.partition_id = claim.partition_id
           AND place.consumer_group = claim.consumer_group
        RETURNING claim.*, greatest(place.attempt_count, 1) AS attempt
    )
    SELECT updated.job, updated.partition_id, 'took', NULL::bigint, NULL::boolean,
           updated.last_offset, updated.batch_end, updated.uid, updated.lane_name,
           updated.queue_id, updated.queue_name, updated.attempt,
           slice.first, slice.created_us, slice.frames, slice.flags
      FROM updated
     CROSS JOIN LATERAL (
        SELECT span.first, span.created_us,
               CASE WHEN span.first = span.base_offset AND span.last = span.end_offset
                    THEN span.frames
                    ELSE substr(span.frames, span.from_byte + 1,
                                queen_int4_at_v1(span.ends, span.last - span.base_offset)::integer
                                - span.from_byte)
               END AS frames,
               substr(span.flags, (span.first - span.base_offset + 1)::integer,
                      (span.last - span.first + 1)::integer) AS flags
          FROM (
            SELECT segment.base_offset, segment.end_offset, segment.frames, segment.ends,
                   segment.flags,
                   (extract(epoch FROM segment.created_at) * 1000000)::bigint AS created_us,
                   greatest(segment.base_offset, updated.batch_start) AS first,
                   least(segment.end_offset, updated.batch_end) AS last,
                   CASE WHEN segment.base_offset >= updated.batch_start THEN 0
                        ELSE queen_int4_at_v1(
                                 segment.ends, updated.batch_start - segment.base_offset - 1)::integer + 1
                   END AS from_byte
              FROM queen_segment segment
             WHERE segment.partition_id = updated.partition_id
               -- queen_segment_base_v1 written out: a call of it costs more than the probe.
               AND segment.base_offset BETWEEN coalesce(
                       (SELECT held.base_offset
                          FROM queen_segment held
                         WHERE held.partition_id = updated.partition_id
                           AND held.base_offset <= updated.batch_start
                         ORDER BY held.base_offset DESC
                         LIMIT 1), updated.batch_start) AND updated.batch_end
             ORDER BY segment.base_offset
          ) AS span
     ) AS slice
    UNION ALL
    SELECT looked.job, looked.partition_id,
           CASE WHEN looked.lane_id IS NULL THEN 'gone'
                WHEN looked.group_id IS NULL THEN 'unregistered'
                WHEN looked.paused THEN 'paused'
                WHEN place.lease_expires_at > v_now THEN 'until'
                WHEN looked.last_offset
                     <= greatest(coalesce(place.committed, -1), looked.log_start - 1) THEN 'empty'
                WHEN greatest(place.retry_at, deferral.due_at) > v_now THEN 'until'
                ELSE 'busy' END,
           (extract(epoch FROM CASE WHEN place.lease_expires_at > v_now
                                    THEN place.lease_expires_at
                                    ELSE greatest(place.retry_at, deferral.due_at)
                               END - v_now) * 1000000)::bigint,
           coalesce(place.lease_expires_at > v_now, false),
           NULL, NULL, looked.uid, looked.lane_name, looked.queue_id, looked.queue_name,
           NULL, NULL, NULL, NULL, NULL
      FROM looked
      LEFT JOIN queen_cursor place
             ON place.partition_id = looked.partition_id
            AND place.consumer_group = looked.consumer_group
     CROSS JOIN LATERAL (
        SELECT CASE WHEN looked.delayed_processing > 0 OR looked.window_buffer > 0
                    THEN queen_created_at_v1(
                             looked.partition_id,
                             greatest(coalesce(place.committed, -1), looked.log_start - 1) + 1)
                         + make_interval(secs => greatest(looked.delayed_processing,
                                                          looked.window_buffer))
               END AS due_at
     ) AS deferral
     -- Hashed, where an anti-join would be a nested loop.
     WHERE (looked.partition_id, looked.consumer_group) NOT IN (
           SELECT claim.partition_id, claim.consumer_group FROM claim);
END;
$$;
