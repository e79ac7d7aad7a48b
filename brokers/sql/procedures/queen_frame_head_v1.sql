-- queen_frame_head_v1: the first bytes of one message's frame, or null when it is not retained.
--
-- Called by  queen_spool_replay_v1, to compare ids whatever the payload weighs
-- Reads      queen_segment
-- Locks      nothing
-- Cost       one index probe and a slice of p_bytes.
-- Answers    bytes, not text: a cut may fall inside a character.

CREATE OR REPLACE FUNCTION queen_frame_head_v1(
    p_partition_id bigint, p_offset bigint, p_bytes integer
)
RETURNS bytea
LANGUAGE sql
STABLE STRICT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
    SELECT substr(segment.frames,
                  CASE WHEN p_offset = segment.base_offset THEN 1
                       ELSE queen_int4_at_v1(segment.ends, p_offset - segment.base_offset - 1) + 2
                  END::integer,
                  p_bytes)
      FROM (
        SELECT candidate.*
          FROM queen_segment candidate
         WHERE candidate.partition_id = p_partition_id
           AND candidate.base_offset <= p_offset
         ORDER BY candidate.base_offset DESC
         LIMIT 1
      ) AS segment
     WHERE segment.end_offset >= p_offset
$$;
