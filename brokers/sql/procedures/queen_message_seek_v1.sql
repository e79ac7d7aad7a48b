-- queen_message_seek_v1: where a transactionId lies that no time slot knows any more.
--
-- Called by  queen_message_get_v1
-- Reads      queen_segment
-- Locks      nothing
-- Cost       at most p_segments_max segments from the newest back, and p_bytes_max of frames.
-- Answers    the newest offset, or null when it is not among them.
--
-- The bytes are only a first sieve, since a payload may hold the same words: the frame decides.

CREATE OR REPLACE FUNCTION queen_message_seek_v1(
    p_partition_id bigint,
    p_transaction  text,
    p_segments_max integer,
    p_bytes_max    bigint
)
RETURNS bigint
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_needle  bytea := convert_to('"transactionId":' || p_transaction || ',"traceId":', 'UTF8');
    v_left    bigint := p_bytes_max;
    v_segment record;
    v_offset  bigint;
BEGIN
    FOR v_segment IN
        SELECT segment.base_offset, segment.end_offset, segment.frames,
               octet_length(segment.frames) AS size
          FROM queen_segment segment
         WHERE segment.partition_id = p_partition_id
         ORDER BY segment.base_offset DESC
         LIMIT p_segments_max
    LOOP
        v_left := v_left - v_segment.size;
        EXIT WHEN v_left < 0;
        CONTINUE WHEN position(v_needle IN v_segment.frames) = 0;
        SELECT max(message.no) INTO v_offset
          FROM generate_series(v_segment.base_offset, v_segment.end_offset) AS message(no)
         WHERE queen_frame_is_v1(queen_frame_get_v1(p_partition_id, message.no), p_transaction);
        EXIT WHEN v_offset IS NOT NULL;
    END LOOP;
    RETURN v_offset;
END;
$$;
