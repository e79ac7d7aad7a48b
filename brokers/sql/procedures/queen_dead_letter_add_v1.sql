-- queen_dead_letter_add_v1: keep a snapshot of a message that a group gives up on.
--
-- Called by  queen_message_ack_v1, queen_delivery_limit_v1
-- Reads      queen_segment, queen_partition, queen_queue
-- Writes     queen_dead_letter
-- Locks      nothing beyond the new row: the caller holds the group's cursor.
-- Cost       one slice and two probes.
-- Answers    true when the message was retained and so could be kept.
--
-- One row per (message, group): a message that is set aside twice keeps its newest reason.
-- When the queue was deleted meanwhile nothing is kept, since nobody could come by it.

CREATE OR REPLACE FUNCTION queen_dead_letter_add_v1(
    p_partition_id bigint,
    p_group        text,
    p_offset       bigint,
    p_error        text,
    p_retry_count  bigint
)
RETURNS boolean
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
    v_frame     text := queen_frame_get_v1(p_partition_id, p_offset);
    v_data      integer := strpos(v_frame, ',"data":');
    v_trace     integer := strpos(v_frame, ',"traceId":');
    v_subject   text;
    v_encrypted boolean;
BEGIN
    IF v_frame IS NULL THEN
        RETURN false;
    END IF;
    SELECT coalesce(get_byte(segment.flags, (p_offset - segment.base_offset)::integer) & 1 = 1, false)
      INTO v_encrypted
      FROM queen_segment segment
     WHERE segment.partition_id = p_partition_id
       AND segment.base_offset = queen_segment_base_v1(p_partition_id, p_offset);
    -- The subject is the last field of the head; the head parses because only strings
    -- that passed the door's identifier check lie in it.
    v_subject := (left(v_frame, v_data - 1) || '}')::json ->> 'producerSub';
    INSERT INTO queen_dead_letter (tenant_id, queue_id, partition_id, consumer_group,
                                   message_offset, message_id, transaction_id,
                                   transaction_hash, payload, encrypted, producer_sub, error,
                                   retry_count, failed_at)
    SELECT queue.tenant_id, queue.id, p_partition_id, p_group, p_offset,
           substr(v_frame, 8, 36)::uuid, substr(v_frame, 62, v_trace - 62),
           hashtextextended(substr(v_frame, 62, v_trace - 62), 0),
           convert_to(substr(v_frame, v_data + 8), 'UTF8'), v_encrypted,
           v_subject, p_error, p_retry_count, clock_timestamp()
      FROM queen_partition lane
      JOIN queen_queue queue ON queue.id = lane.queue_id
     WHERE lane.id = p_partition_id
    ON CONFLICT (partition_id, consumer_group, message_offset) DO UPDATE
       SET error = excluded.error, retry_count = excluded.retry_count,
           failed_at = excluded.failed_at;
    RETURN true;
END;
$$;
