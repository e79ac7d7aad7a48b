-- queen_visible_end_v1: the last offset of a partition that a group may be handed now.
--
-- Called by  queen_partition_ready_v1, queen_message_claim_v1, only for queues that delay or
--            buffer; the others are visible to their end.
-- Reads      queen_segment
-- Locks      nothing
-- Cost       one probe, and for a delayed queue at most p_wanted segments; for the newest
--            one (conflation) the segments that are still delayed.
-- Answers    an offset; p_floor when nothing is visible.
--
-- A delayed message is visible once it is that old. A window holds the whole partition from
-- its first undelivered message for so long, or until p_window_batch messages wait.

CREATE OR REPLACE FUNCTION queen_visible_end_v1(
    p_partition_id bigint,
    p_floor        bigint,
    p_last_offset  bigint,
    p_now          timestamptz,
    p_delay_s      bigint,
    p_window_s     bigint,
    p_window_batch integer,
    p_wanted       integer,
    p_newest       boolean
)
RETURNS bigint
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
    v_end bigint := p_last_offset;
BEGIN
    IF p_last_offset <= p_floor THEN
        RETURN p_floor;
    END IF;
    IF p_delay_s > 0 THEN
        IF p_newest THEN
            SELECT segment.end_offset INTO v_end
              FROM queen_segment segment
             WHERE segment.partition_id = p_partition_id
               AND segment.end_offset > p_floor
               AND segment.created_at <= p_now - make_interval(secs => p_delay_s)
             ORDER BY segment.base_offset DESC
             LIMIT 1;
        ELSE
            SELECT max(waiting.end_offset) INTO v_end
              FROM (
                SELECT segment.end_offset, segment.created_at
                  FROM queen_segment segment
                 WHERE segment.partition_id = p_partition_id
                   AND segment.base_offset >= queen_segment_base_v1(p_partition_id, p_floor + 1)
                 ORDER BY segment.base_offset
                 LIMIT greatest(p_wanted, 1)
              ) AS waiting
             WHERE waiting.created_at <= p_now - make_interval(secs => p_delay_s);
        END IF;
        v_end := least(coalesce(v_end, p_floor), p_last_offset);
    END IF;
    IF p_window_s > 0 AND v_end > p_floor AND v_end - p_floor < p_window_batch
       AND queen_created_at_v1(p_partition_id, p_floor + 1)
           > p_now - make_interval(secs => p_window_s) THEN
        RETURN p_floor;
    END IF;
    RETURN greatest(v_end, p_floor);
END;
$$;
