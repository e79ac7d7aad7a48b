-- queen_segment_base_v1: the base offset of the segment that holds an offset.
--
-- Called by  the procedures that read a span of a partition.
-- Reads      queen_segment
-- Cost       one index probe.
-- Answers    the greatest base at or below the offset; the offset itself when there is none.

CREATE OR REPLACE FUNCTION queen_segment_base_v1(p_partition_id bigint, p_offset bigint)
RETURNS bigint
LANGUAGE sql
STABLE
AS $$
    SELECT coalesce(
        (SELECT segment.base_offset
           FROM queen_segment segment
          WHERE segment.partition_id = p_partition_id AND segment.base_offset <= p_offset
          ORDER BY segment.base_offset DESC
          LIMIT 1),
        p_offset)
$$;
