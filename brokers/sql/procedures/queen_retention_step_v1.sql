-- queen_retention_step_v1: delete from one partition the oldest segments that a rule gives up.
--
-- Called by  brokers/store/leader_calls.py, retention_step()
-- Reads      queen_lease, queen_partition, queen_queue, queen_group, queen_cursor, queen_segment
-- Writes     queen_segment, queen_partition (log_start, oldest_live_at, retention_look_at),
--            queen_retention_history
-- Locks      the segments that go, which no one else wants; then the partition's row, waiting
--            at most p_wait_ms, and only to the commit that follows; its history row last.
-- Cost       about p_segments_max segments and p_bytes_max bytes of frames.
-- Answers    one row, whose verdict is
--              done     the three counts of messages, by rule, are gone; more: there is more
--              nothing  no rule gives up anything (any more)
--              blocked  only what a group has yet to consume: looked at later
--              busy     somebody keeps the partition's row
--              gone     no such partition
--              fenced   the token is not that of the leader; nothing was done
--
-- created_at never goes back along a partition, and a cursor completes everything below it:
-- what a rule gives up is always a beginning of the log. A segment goes whole, when its
-- youngest message is given up. retentionSeconds, maxWaitTimeSeconds and, where the queue
-- enforces it, ttl go by age alone;
-- completedRetentionSeconds also waits for the slowest registered group, where a group without
-- a cursor has consumed nothing, and a queue without groups has nobody who could.
--
-- The row is locked behind the deletion, so that pushes wait for one commit and no more; what
-- the log holds then is read anew under the lock. Losing a deletion in a crash only means to
-- repeat it: the commit is asynchronous.

CREATE OR REPLACE FUNCTION queen_retention_step_v1(
    p_token        bigint,
    p_partition_id bigint,
    p_segments_max integer,
    p_bytes_max    bigint,
    p_wait_ms      integer
)
RETURNS TABLE (
    verdict text, more boolean, retention_messages bigint, completed_messages bigint,
    eviction_messages bigint, segments bigint, bytes bigint
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
    v_now       timestamptz;
    v_lane      record;
    v_aged      timestamptz;
    v_evicted   timestamptz;
    v_completed timestamptz;
    v_consumed  bigint := -1;
    v_gone      record;
    v_oldest    timestamptz;
    v_blocked   boolean;
BEGIN
    IF NOT queen_lease_held_v1('retention', p_token) THEN
        RETURN QUERY SELECT 'fenced', false, 0::bigint, 0::bigint, 0::bigint, 0::bigint, 0::bigint;
        RETURN;
    END IF;
    v_now := clock_timestamp();

    SELECT lane.queue_id, lane.log_start, lane.retention_look_at, queue.tenant_id,
           CASE WHEN queue.retention_enabled AND queue.retention_seconds > 0
                THEN v_now - make_interval(secs => queue.retention_seconds) END AS aged,
           CASE WHEN queue.retention_enabled AND queue.completed_retention_seconds > 0
                THEN v_now - make_interval(secs => queue.completed_retention_seconds)
           END AS completed,
           v_now - make_interval(secs => least(
               nullif(queue.max_wait_time_seconds, 0),
               CASE WHEN queue.enforce THEN nullif(least(queue.ttl, 3153600000), 0) END)) AS evicted
      INTO v_lane
      FROM queen_partition lane
      JOIN queen_queue queue ON queue.id = lane.queue_id
     WHERE lane.id = p_partition_id;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'gone', false, 0::bigint, 0::bigint, 0::bigint, 0::bigint, 0::bigint;
        RETURN;
    END IF;
    v_aged := coalesce(v_lane.aged, '-infinity');
    v_evicted := coalesce(v_lane.evicted, '-infinity');
    v_completed := coalesce(v_lane.completed, '-infinity');
    IF v_lane.completed IS NOT NULL THEN
        SELECT coalesce(min(coalesce(place.committed, -1)), -1) INTO v_consumed
          FROM queen_group registered
          LEFT JOIN queen_cursor place
                 ON place.partition_id = p_partition_id
                AND place.consumer_group = registered.consumer_group
         WHERE registered.queue_id = v_lane.queue_id;
    END IF;

    -- From log_start on: below it the index is full of what earlier steps deleted.
    SELECT max(given_up.base_offset) AS last_base, max(given_up.end_offset) AS last_offset,
           count(*) AS segments, coalesce(sum(given_up.size), 0)::bigint AS bytes,
           coalesce(sum(given_up.messages) FILTER (WHERE given_up.rule = 1), 0)::bigint AS aged,
           coalesce(sum(given_up.messages) FILTER (WHERE given_up.rule = 2), 0)::bigint AS completed,
           coalesce(sum(given_up.messages) FILTER (WHERE given_up.rule = 3), 0)::bigint AS evicted
      INTO v_gone
      FROM (
        SELECT oldest.base_offset, oldest.end_offset, oldest.size,
               oldest.end_offset - oldest.base_offset + 1 AS messages,
               sum(oldest.size) OVER (ORDER BY oldest.base_offset) - oldest.size AS before,
               CASE WHEN oldest.created_at < v_aged THEN 1
                    WHEN oldest.created_at < v_completed
                     AND oldest.end_offset <= v_consumed THEN 2
                    WHEN oldest.created_at < v_evicted THEN 3
               END AS rule
          FROM (
            SELECT segment.base_offset, segment.end_offset, segment.created_at,
                   octet_length(segment.frames) AS size
              FROM queen_segment segment
             WHERE segment.partition_id = p_partition_id
               AND segment.base_offset >= v_lane.log_start
             ORDER BY segment.base_offset
             LIMIT p_segments_max
          ) AS oldest
      ) AS given_up
     WHERE given_up.rule IS NOT NULL AND given_up.before < p_bytes_max;

    BEGIN
        PERFORM set_config('synchronous_commit', 'off', true);
        PERFORM set_config('lock_timeout', p_wait_ms::text, true);
        IF v_gone.segments > 0 THEN
            DELETE FROM queen_segment
             WHERE partition_id = p_partition_id
               AND base_offset BETWEEN v_lane.log_start AND v_gone.last_base;
        END IF;
        PERFORM 1 FROM queen_partition WHERE id = p_partition_id FOR NO KEY UPDATE;
    EXCEPTION WHEN lock_not_available THEN
        RETURN QUERY SELECT 'busy', false, 0::bigint, 0::bigint, 0::bigint, 0::bigint, 0::bigint;
        RETURN;
    END;

    -- A push may have committed while we waited: only a new statement sees it.
    SELECT segment.created_at INTO v_oldest
      FROM queen_segment segment
     WHERE segment.partition_id = p_partition_id
       AND segment.base_offset >= coalesce(v_gone.last_offset + 1, v_lane.log_start)
     ORDER BY segment.base_offset
     LIMIT 1;
    more := coalesce(v_oldest < greatest(v_aged, v_evicted), false)
            OR (v_gone.segments > 0 AND coalesce(v_oldest < v_completed, false)
                AND v_gone.last_offset < v_consumed);
    v_blocked := NOT more AND coalesce(v_oldest < v_completed, false);
    UPDATE queen_partition
       -- A purge may have come further meanwhile.
       SET log_start = greatest(v_gone.last_offset + 1, log_start),
           oldest_live_at = v_oldest,
           -- The longer it waits the more seldom it is looked at: late by a quarter, at most
           -- by five minutes, and never later than the rules that need no consumer.
           retention_look_at = CASE WHEN v_blocked THEN least(
               v_now + least((v_completed - v_oldest) / 4, interval '5 minutes'),
               v_oldest + (v_now - v_lane.aged), v_oldest + (v_now - v_lane.evicted)) END
     WHERE id = p_partition_id
       AND (v_gone.segments > 0 OR v_blocked OR retention_look_at IS NOT NULL
            OR oldest_live_at IS DISTINCT FROM v_oldest);

    IF v_gone.segments > 0 THEN
        INSERT INTO queen_retention_history AS kept (
               bucket, queue_id, tenant_id, retention_messages, completed_messages,
               eviction_messages, events, segments, bytes, partitions_deleted)
        VALUES (date_trunc('minute', v_now), v_lane.queue_id, v_lane.tenant_id,
                v_gone.aged, v_gone.completed, v_gone.evicted, 1, v_gone.segments,
                v_gone.bytes, 0)
        ON CONFLICT (bucket, queue_id) DO UPDATE
           SET retention_messages = kept.retention_messages + excluded.retention_messages,
               completed_messages = kept.completed_messages + excluded.completed_messages,
               eviction_messages = kept.eviction_messages + excluded.eviction_messages,
               events = kept.events + 1,
               segments = kept.segments + excluded.segments,
               bytes = kept.bytes + excluded.bytes;
    END IF;

    RETURN QUERY
    SELECT CASE WHEN v_gone.segments > 0 THEN 'done' WHEN v_blocked THEN 'blocked'
                ELSE 'nothing' END,
           more, v_gone.aged, v_gone.completed, v_gone.evicted, v_gone.segments, v_gone.bytes;
END;
$$;
