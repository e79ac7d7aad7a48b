-- queen_span_v1: the frames of a span of offsets of one partition.
--
-- Called by  queen_transaction_resolve_v1
-- Reads      queen_segment
-- Locks      nothing
-- Cost       one probe and one slice a segment, about a microsecond a message.
-- Answers    (message_offset, frame) for each retained message of the span.

CREATE OR REPLACE FUNCTION queen_span_v1(p_partition_id bigint, p_first bigint, p_last bigint)
RETURNS TABLE (message_offset bigint, frame text)
LANGUAGE sql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
    SELECT span.first + frame.position - 1, frame.text
      FROM (
        SELECT cut.first,
               substr(cut.frames, cut.from_byte + 1,
                      queen_int4_at_v1(cut.ends, cut.last - cut.base_offset)::integer
                      - cut.from_byte) AS frames
          FROM (
            SELECT segment.base_offset, segment.frames, segment.ends,
                   greatest(segment.base_offset, p_first) AS first,
                   least(segment.end_offset, p_last) AS last,
                   CASE WHEN segment.base_offset >= p_first THEN 0
                        ELSE queen_int4_at_v1(segment.ends, p_first - segment.base_offset - 1)::integer
                             + 1
                   END AS from_byte
              FROM queen_segment segment
             WHERE segment.partition_id = p_partition_id
               AND segment.base_offset
                   BETWEEN queen_segment_base_v1(p_partition_id, p_first) AND p_last
               AND segment.end_offset >= p_first
          ) AS cut
      ) AS span
     CROSS JOIN LATERAL string_to_table(convert_from(span.frames, 'UTF8'), chr(30))
            WITH ORDINALITY AS frame(text, position)
$$;
