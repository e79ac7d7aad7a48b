-- queen_message_search_v1: one bounded step of looking for a text in the messages of a queue.
--
-- Called by  brokers/store/message_calls.py, message_search()
-- Reads      queen_queue, queen_partition, queen_segment
-- Locks      nothing
-- Cost       at most p_lanes_max partitions, p_segments_max segments and p_bytes_max bytes of
--            frames (one segment more when the first is larger), and two binary searches for
--            each partition whose messages do not all lie in the span of time.
-- Answers    the segments that hold the bytes anywhere, partitions by name and segments as
--            they were stored; behind them one row without an uid: the place up to which was
--            looked (null when that is the end), and how many segments, bytes, messages and encrypted
--            messages that were. None at all when there is no such queue.
--
-- A segment that holds the bytes need not have them in a payload: the caller looks closer.
-- Payloads of encrypted messages are not looked at, which is why they are counted.

CREATE OR REPLACE FUNCTION queen_message_search_v1(
    p_tenant_id       uuid,
    p_queue           text,
    p_partition       text,
    p_text            bytea,
    p_from            timestamptz,
    p_to              timestamptz,
    p_after_partition text,
    p_after_offset    bigint,
    p_hits_max        integer,
    p_lanes_max       integer,
    p_segments_max    integer,
    p_bytes_max       bigint
)
RETURNS TABLE (
    uid uuid, partition_name text, partition_id bigint, base_offset bigint,
    created_at timestamptz, frames bytea, flags bytea,
    reached_partition text, reached_offset bigint, segments integer, bytes bigint,
    messages bigint, encrypted bigint
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_queue_id  bigint;
    v_lane      record;
    v_segment   record;
    v_low       bigint;
    v_high      bigint;
    v_hits      integer := 0;
    v_lanes     integer := 0;
    v_segments  integer := 0;
    v_bytes     bigint := 0;
    v_messages  bigint := 0;
    v_encrypted bigint := 0;
    v_name      text := p_after_partition;
    v_offset    bigint := p_after_offset;
    v_full      boolean := false;
BEGIN
    SELECT id INTO v_queue_id FROM queen_queue WHERE tenant_id = p_tenant_id AND name = p_queue;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    FOR v_lane IN
        SELECT lane.*
          FROM queen_partition lane
         WHERE lane.queue_id = v_queue_id
           AND lane.name >= greatest(p_after_partition, p_partition)
           AND (p_partition IS NULL OR lane.name = p_partition)
         ORDER BY lane.name
         LIMIT CASE WHEN p_partition IS NULL THEN p_lanes_max + 1 ELSE 1 END
    LOOP
        IF v_lane.name <> v_name THEN
            v_name := v_lane.name;
            v_offset := -1;
        END IF;
        IF v_lanes >= p_lanes_max THEN
            -- The place is before this partition, so the next step cannot stop where we did.
            v_full := true;
            EXIT;
        END IF;
        v_lanes := v_lanes + 1;
        CONTINUE WHEN v_lane.last_offset < v_lane.log_start OR v_lane.last_created_at < p_from
                      OR v_lane.oldest_live_at >= p_to;
        v_low := greatest(
            CASE WHEN v_lane.oldest_live_at >= p_from THEN v_lane.log_start
                 ELSE queen_segment_since_v1(v_lane.id, p_from) END, v_offset + 1);
        v_high := CASE WHEN v_lane.last_created_at < p_to THEN v_lane.last_offset
                       ELSE queen_segment_since_v1(v_lane.id, p_to) - 1 END;
        CONTINUE WHEN v_low > v_high;
        FOR v_segment IN
            SELECT segment.base_offset, segment.end_offset, segment.created_at, segment.frames,
                   segment.flags, octet_length(segment.frames) AS size
              FROM queen_segment segment
             WHERE segment.partition_id = v_lane.id
               AND segment.base_offset >= queen_segment_base_v1(v_lane.id, v_low)
               AND segment.base_offset <= v_high
             ORDER BY segment.base_offset
             LIMIT p_segments_max + 1
        LOOP
            IF v_segments >= p_segments_max OR v_hits >= p_hits_max
               OR v_segments > 0 AND v_bytes + v_segment.size > p_bytes_max THEN
                v_full := true;
                EXIT;
            END IF;
            v_segments := v_segments + 1;
            v_bytes := v_bytes + v_segment.size;
            v_messages := v_messages + v_segment.end_offset - v_segment.base_offset + 1;
            -- A flag is a byte, 0 or 1.
            v_encrypted := v_encrypted + coalesce(
                length(encode(v_segment.flags, 'hex'))
                - length(replace(encode(v_segment.flags, 'hex'), '01', '')), 0) / 2;
            v_offset := v_segment.end_offset;
            IF position(p_text IN v_segment.frames) > 0 THEN
                v_hits := v_hits + 1;
                RETURN QUERY
                SELECT v_lane.uid, v_lane.name, v_lane.id, v_segment.base_offset,
                       v_segment.created_at, v_segment.frames, v_segment.flags, NULL::text,
                       NULL::bigint, NULL::integer, NULL::bigint, NULL::bigint, NULL::bigint;
            END IF;
        END LOOP;
        EXIT WHEN v_full;
    END LOOP;
    RETURN QUERY
    SELECT NULL::uuid, NULL::text, NULL::bigint, NULL::bigint, NULL::timestamptz, NULL::bytea,
           NULL::bytea, CASE WHEN v_full THEN v_name END, CASE WHEN v_full THEN v_offset END,
           v_segments, v_bytes, v_messages, v_encrypted;
END;
$$;
