-- queen_created_at_v1: when the first retained message at or above an offset was stored.
--
-- Called by  queen_visible_end_v1, queen_message_claim_v1, queen_partition_ready_v1,
--            queen_log_start_v1
-- Reads      queen_segment
-- Cost       two index probes.
-- Answers    a time; null when there is no such message.

CREATE OR REPLACE FUNCTION queen_created_at_v1(p_partition_id bigint, p_offset bigint)
RETURNS timestamptz
LANGUAGE sql
STABLE
SET enable_seqscan = off
AS $$
    SELECT segment.created_at
      FROM queen_segment segment
     WHERE segment.partition_id = p_partition_id
       AND segment.base_offset >= queen_segment_base_v1(p_partition_id, p_offset)
       AND segment.end_offset >= p_offset
     ORDER BY segment.base_offset
     LIMIT 1
$$;
