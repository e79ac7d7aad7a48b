-- queen_log_start_v1: the first offset of a partition that is not older than a time.
--
-- Called by  queen_message_claim_v1, where a queue enforces its ttl
-- Reads      queen_segment
-- Cost       none while the oldest message is young enough; else two index probes for each
--            halving of the retained offsets, some twenty of them.
-- Answers    an offset from p_log_start on; p_last_offset + 1 when all of it is older.
--
-- created_at never goes back along a partition, so that halving finds the place.

CREATE OR REPLACE FUNCTION queen_log_start_v1(
    p_partition_id bigint,
    p_log_start    bigint,
    p_last_offset  bigint,
    p_oldest_at    timestamptz,
    p_since        timestamptz
)
RETURNS bigint
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
    v_low    bigint := p_log_start;
    v_high   bigint := p_last_offset + 1;
    v_middle bigint;
BEGIN
    IF p_oldest_at IS NULL OR p_oldest_at >= p_since THEN
        RETURN p_log_start;
    END IF;
    -- Below v_low all is older, from v_high on nothing is.
    WHILE v_low < v_high LOOP
        v_middle := (v_low + v_high) / 2;
        IF queen_created_at_v1(p_partition_id, v_middle) < p_since THEN
            v_low := v_middle + 1;
        ELSE
            v_high := v_middle;
        END IF;
    END LOOP;
    RETURN v_low;
END;
$$;
