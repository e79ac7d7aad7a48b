-- queen_ready_due_v1: when unread messages of a partition may be handed to a group.
--
-- Called by  queen_ready_probe_v1
-- Reads      queen_segment, only for queues that delay or buffer
-- Cost       none for the others.
-- Answers    microseconds from p_now; 0 is now. Time put off by a nack counts as leased.

CREATE OR REPLACE FUNCTION queen_ready_due_v1(
    p_partition_id     bigint,
    p_last_offset      bigint,
    p_log_start        bigint,
    p_committed        bigint,
    p_lease_expires_at timestamptz,
    p_delay_s          bigint,
    p_window_s         bigint,
    p_window_batch     integer,
    p_now              timestamptz
)
RETURNS bigint
LANGUAGE sql
STABLE
AS $$
    SELECT CASE
        WHEN p_lease_expires_at > p_now
        THEN (extract(epoch FROM p_lease_expires_at - p_now) * 1000000)::bigint
        WHEN p_delay_s = 0 AND p_window_s = 0 THEN 0
        WHEN queen_visible_end_v1(
                 p_partition_id, greatest(coalesce(p_committed, -1), p_log_start - 1),
                 p_last_offset, p_now, p_delay_s, p_window_s, p_window_batch, p_window_batch,
                 false) > greatest(coalesce(p_committed, -1), p_log_start - 1)
        THEN 0
        ELSE greatest((extract(epoch FROM
                 queen_created_at_v1(p_partition_id,
                     greatest(coalesce(p_committed, -1), p_log_start - 1) + 1)
                 + make_interval(secs => greatest(p_delay_s, p_window_s)) - p_now)
                 * 1000000)::bigint, 1000)
    END
$$;
