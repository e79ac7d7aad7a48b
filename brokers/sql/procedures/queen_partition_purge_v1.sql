-- queen_partition_purge_v1: delete the oldest segments of one partition, up to an offset.
--
-- Called by  brokers/store/queue_calls.py, partition_purge()
-- Reads      queen_partition, queen_segment
-- Writes     queen_segment, queen_partition (log_start, oldest_live_at), queen_cursor
-- Locks      the segments that go; then the partition's row and cursor rows in ascending
--            group, waiting at most p_wait_ms for each, and only to the commit that follows.
-- Cost       about p_segments_max segments and p_bytes_max bytes of frames; a pass over the
--            cursors of the partition.
-- Answers    one row, whose verdict is
--              done     messages, segments and bytes are gone; more: there is more to do
--              busy     somebody keeps one of the rows: nothing was deleted
--              gone     no such partition
--
-- As in queen_retention_step_v1 the row is locked behind the deletion, so that pushes wait
-- for one commit and no more. A cursor whose place is gone goes on at log_start by itself. A
-- lease on nothing but purged messages is ended, or it would hold up what is pushed next:
-- its holder is told that it lost them.

CREATE OR REPLACE FUNCTION queen_partition_purge_v1(
    p_partition_id bigint,
    p_until        bigint,
    p_segments_max integer,
    p_bytes_max    bigint,
    p_wait_ms      integer
)
RETURNS TABLE (verdict text, more boolean, messages bigint, segments bigint, bytes bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_start  bigint;
    v_gone   record;
    v_oldest timestamptz;
BEGIN
    SELECT lane.log_start INTO v_start FROM queen_partition lane WHERE lane.id = p_partition_id;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'gone', false, 0::bigint, 0::bigint, 0::bigint;
        RETURN;
    END IF;

    SELECT max(given_up.base_offset) AS last_base, max(given_up.end_offset) AS last_offset,
           count(*) AS segments, coalesce(sum(given_up.size), 0)::bigint AS bytes,
           coalesce(sum(given_up.end_offset - given_up.base_offset + 1), 0)::bigint AS messages
      INTO v_gone
      FROM (
        SELECT oldest.*, sum(oldest.size) OVER (ORDER BY oldest.base_offset) - oldest.size AS before
          FROM (
            SELECT segment.base_offset, segment.end_offset, octet_length(segment.frames) AS size
              FROM queen_segment segment
             WHERE segment.partition_id = p_partition_id
               AND segment.base_offset BETWEEN v_start AND p_until
             ORDER BY segment.base_offset
             LIMIT p_segments_max
          ) AS oldest
      ) AS given_up
     WHERE given_up.before < p_bytes_max;
    IF v_gone.segments = 0 THEN
        RETURN QUERY SELECT 'done', false, 0::bigint, 0::bigint, 0::bigint;
        RETURN;
    END IF;

    BEGIN
        PERFORM set_config('lock_timeout', p_wait_ms::text, true);
        DELETE FROM queen_segment
         WHERE partition_id = p_partition_id
           AND base_offset BETWEEN v_start AND v_gone.last_base;
        PERFORM 1 FROM queen_partition WHERE id = p_partition_id FOR NO KEY UPDATE;
        PERFORM 1 FROM queen_cursor place
          WHERE place.partition_id = p_partition_id
          ORDER BY place.consumer_group
            FOR UPDATE;
    EXCEPTION WHEN lock_not_available THEN
        RETURN QUERY SELECT 'busy', true, 0::bigint, 0::bigint, 0::bigint;
        RETURN;
    END;

    -- A push may have committed while we waited: only a new statement sees it.
    SELECT segment.created_at INTO v_oldest
      FROM queen_segment segment
     WHERE segment.partition_id = p_partition_id
       AND segment.base_offset > v_gone.last_offset
     ORDER BY segment.base_offset
     LIMIT 1;
    UPDATE queen_partition
       -- Retention may have come further meanwhile.
       SET log_start = greatest(log_start, v_gone.last_offset + 1),
           oldest_live_at = v_oldest,
           retention_look_at = NULL
     WHERE id = p_partition_id;
    UPDATE queen_cursor
       SET committed = greatest(committed, batch_end),
           lease_id = NULL, lease_expires_at = NULL,
           batch_start = NULL, batch_end = NULL, retry_at = NULL,
           retry_offset = NULL, retry_count = 0,
           attempt_offset = NULL, attempt_count = 0, expiry_count = 0, solo_until = NULL
     WHERE partition_id = p_partition_id
       AND batch_end <= v_gone.last_offset;
    -- What was nacked and is to wait for its retryDelay comes next, and is gone.
    UPDATE queen_cursor
       SET retry_at = NULL
     WHERE partition_id = p_partition_id
       AND retry_at IS NOT NULL AND batch_end IS NULL AND committed < v_gone.last_offset;

    RETURN QUERY
    SELECT 'done', v_gone.last_offset < p_until, v_gone.messages, v_gone.segments, v_gone.bytes;
END;
$$;
