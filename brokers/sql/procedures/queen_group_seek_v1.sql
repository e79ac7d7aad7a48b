-- queen_group_seek_v1: put a group's cursors at the end, or at an instant; one bounded step.
--
-- Called by  brokers/store/group_calls.py, group_seek()
-- Reads      queen_queue, queen_group, queen_partition, queen_segment
-- Writes     queen_cursor, queen_wake
-- Locks      the queue row and the group row (key share: a delete of either waits), the cursor
--            rows in ascending partition, new ones included, the queen_wake row last. No
--            partition: pushes go on.
-- Cost       one probe a partition; for an instant in the middle of what is retained as many
--            as it takes to halve the segments down to one.
-- Answers    how many cursors were put; null when the queue or the subscription is gone.
--
-- p_at null is the end: the last offset that is visible, and never behind what the group
-- completed while we waited for its row. An instant is just below the first segment stored at
-- or after it: the end when there is none, the oldest retained when it is older than all.
-- A lease that is live is ended by it, whoever holds it: a late ack finds it invalid. What was
-- nacked waits for no retryDelay any more. Retries and deliveries are counted anew, so that what
-- is read again has its whole budget.

CREATE OR REPLACE FUNCTION queen_group_seek_v1(
    p_queue_id      bigint,
    p_group         text,
    p_partition_ids bigint[],
    p_at            timestamptz
)
RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
    v_moved bigint;
BEGIN
    PERFORM 1 FROM queen_queue WHERE id = p_queue_id FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    PERFORM 1 FROM queen_group
      WHERE queue_id = p_queue_id AND consumer_group = p_group
        FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;

    INSERT INTO queen_cursor AS place (partition_id, consumer_group, committed)
    SELECT lane.id, p_group,
           CASE WHEN p_at IS NULL THEN lane.last_offset
                WHEN lane.last_created_at IS NULL OR lane.last_created_at < p_at
                THEN lane.last_offset
                WHEN lane.oldest_live_at >= p_at THEN lane.log_start - 1
                ELSE greatest(coalesce(queen_segment_since_v1(lane.id, p_at) - 1,
                                       lane.last_offset),
                              lane.log_start - 1)
           END
      FROM queen_partition lane
     WHERE lane.id = ANY (p_partition_ids) AND lane.queue_id = p_queue_id
     ORDER BY lane.id
    ON CONFLICT (partition_id, consumer_group) DO UPDATE
       SET committed = CASE WHEN p_at IS NULL
                            THEN greatest(place.committed, excluded.committed)
                            ELSE excluded.committed END,
           lease_id = NULL, lease_expires_at = NULL, batch_start = NULL, batch_end = NULL,
           retry_at = NULL, retry_offset = NULL, retry_count = 0,
           attempt_offset = NULL, attempt_count = 0, expiry_count = 0, solo_until = NULL;
    GET DIAGNOSTICS v_moved = ROW_COUNT;

    INSERT INTO queen_wake AS wake (queue_id, consumer_group)
    VALUES (p_queue_id, p_group)
    ON CONFLICT (queue_id, consumer_group) DO UPDATE SET version = wake.version + 1;
    RETURN v_moved;
END;
$$;
