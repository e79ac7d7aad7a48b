-- queen_segment_figures_v1: how many segments a queue has, and the bytes of their frames.
--
-- Called by  queen_queue_list_v1, queen_queue_describe_v1, queen_retained_bytes_step_v1
-- Reads      queen_partition, queen_segment (lengths only: frames are not fetched)
-- Locks      nothing
-- Cost       at most p_segments_max segments, and a probe for each partition before them.
-- Answers    exact figures for a queue of at most p_segments_max segments; for a larger one
--            those of a sample, scaled by its share of the p_messages retained ones.

CREATE OR REPLACE FUNCTION queen_segment_figures_v1(
    p_queue_id     bigint,
    p_messages     bigint,
    p_segments_max integer
)
RETURNS TABLE (segments bigint, bytes bigint)
LANGUAGE sql
STABLE
AS $$
    SELECT CASE WHEN sample.segments < p_segments_max THEN sample.segments
                ELSE greatest(sample.segments,
                              round(sample.segments * (p_messages / sample.messages)))::bigint
           END,
           CASE WHEN sample.segments < p_segments_max THEN sample.bytes
                ELSE greatest(sample.bytes,
                              round(sample.bytes * (p_messages / sample.messages)))::bigint
           END
      FROM (
        SELECT count(*) AS segments, sum(taken.messages) AS messages,
               coalesce(sum(taken.bytes), 0)::bigint AS bytes
          FROM (
            SELECT segment.end_offset - segment.base_offset + 1 AS messages,
                   octet_length(segment.frames)::bigint AS bytes
              FROM queen_partition lane
              -- Below log_start the index is full of what retention deleted.
              JOIN queen_segment segment
                ON segment.partition_id = lane.id AND segment.base_offset >= lane.log_start
             WHERE lane.queue_id = p_queue_id
             LIMIT p_segments_max
          ) AS taken
      ) AS sample
$$;
