-- queen_message_find_v1: which of these messages a partition stored in a span of time.
--
-- Called by  queen_spool_replay_v1, for messages whose transaction rows may be gone
-- Reads      queen_segment
-- Locks      nothing
-- Cost       two binary searches, two small slices for each segment of the span; whole are
--            read only those segments whose first and last id enclose one that is asked for.
-- Answers    the ids that were found; null for none.
--
-- Ids rise inside a segment. A frame begins with {"id":"<36>" and the byte before it (none
-- before the first) occurs nowhere else, so an id inside a payload is never mistaken.

CREATE OR REPLACE FUNCTION queen_message_find_v1(
    p_partition_id bigint,
    p_ids          uuid[],
    p_from         timestamptz,
    p_to           timestamptz
)
RETURNS uuid[]
LANGUAGE sql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
    SELECT array_agg(DISTINCT asked.id)
      FROM (
        SELECT segment.frames,
               convert_from(substr(segment.frames, 8, 36), 'UTF8')::uuid AS first_id,
               CASE WHEN segment.end_offset > segment.base_offset
                    THEN convert_from(
                        substr(segment.frames,
                               queen_int4_at_v1(segment.ends,
                                                segment.end_offset - segment.base_offset - 1
                               )::integer + 9,
                               36),
                        'UTF8')::uuid
               END AS last_id
          FROM queen_segment segment
         WHERE segment.partition_id = p_partition_id
           AND segment.base_offset >= queen_segment_since_v1(p_partition_id, p_from)
           AND segment.base_offset
               < queen_segment_since_v1(p_partition_id, p_to + interval '1 microsecond')
        OFFSET 0
      ) AS spanned
      JOIN unnest(p_ids) AS asked(id)
        ON asked.id = spanned.first_id
        OR (asked.id > spanned.first_id AND asked.id <= spanned.last_id
            AND position(convert_to(chr(30) || '{"id":"' || asked.id || '"', 'UTF8')
                         IN spanned.frames) > 0)
$$;
