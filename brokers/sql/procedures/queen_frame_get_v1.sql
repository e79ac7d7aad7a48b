-- queen_frame_get_v1: the frame of one message, or null when it is not retained.
--
-- Called by  the procedures that need a message whole: duplicates, acks, dead letters.
-- Reads      queen_segment
-- Locks      nothing
-- Cost       one index probe and one slice.
-- Answers    the frame as text (see brokers/frames.py), its payload's bytes unchanged.

CREATE OR REPLACE FUNCTION queen_frame_get_v1(p_partition_id bigint, p_offset bigint)
RETURNS text
LANGUAGE sql
STABLE STRICT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
    SELECT convert_from(substr(found.frames, found.first + 1, found.behind - found.first), 'UTF8')
      FROM (
        SELECT segment.frames,
               CASE WHEN p_offset = segment.base_offset THEN 0
                    ELSE queen_int4_at_v1(segment.ends, p_offset - segment.base_offset - 1) + 1
               END::integer AS first,
               queen_int4_at_v1(segment.ends, p_offset - segment.base_offset)::integer AS behind
          FROM (
            SELECT candidate.*
              FROM queen_segment candidate
             WHERE candidate.partition_id = p_partition_id
               AND candidate.base_offset <= p_offset
             ORDER BY candidate.base_offset DESC
             LIMIT 1
          ) AS segment
         WHERE segment.end_offset >= p_offset
      ) AS found
$$;
