-- queen_segment_since_v1: where in a partition begins what was stored at or after an instant.
--
-- Called by  queen_message_find_v1, queen_group_seek_v1, queen_message_claim_v1
-- Reads      queen_segment
-- Locks      nothing
-- Cost       one index probe for each halving of the retained offsets: created_at never goes
--            back along a partition.
-- Answers    the base offset of the first such segment; behind the last one when there is
--            none; null when nothing is retained.

CREATE OR REPLACE FUNCTION queen_segment_since_v1(p_partition_id bigint, p_at timestamptz)
RETURNS bigint
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_low     bigint;
    v_high    bigint;
    v_middle  bigint;
    v_segment record;
BEGIN
    SELECT base_offset INTO v_low
      FROM queen_segment
     WHERE partition_id = p_partition_id
     ORDER BY base_offset
     LIMIT 1;
    SELECT end_offset + 1 INTO v_high
      FROM queen_segment
     WHERE partition_id = p_partition_id
     ORDER BY base_offset DESC
     LIMIT 1;
    WHILE v_low < v_high LOOP
        v_middle := v_low + (v_high - v_low) / 2;
        SELECT base_offset, end_offset, created_at INTO v_segment
          FROM queen_segment
         WHERE partition_id = p_partition_id AND base_offset <= v_middle
         ORDER BY base_offset DESC
         LIMIT 1;
        IF v_segment.created_at >= p_at THEN
            v_high := v_segment.base_offset;
        ELSE
            -- The greater of the two, lest a gap between segments be met for ever.
            v_low := greatest(v_segment.end_offset, v_middle) + 1;
        END IF;
    END LOOP;
    RETURN v_low;
END;
$$;
