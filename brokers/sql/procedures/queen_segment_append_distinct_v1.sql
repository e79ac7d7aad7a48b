-- queen_segment_append_distinct_v1: append those messages of one group that are not duplicates.
--
-- Called by  queen_message_push_v1, for a group in which a hash was seen before
-- Reads      queen_txn, queen_segment, queen_partition
-- Writes     queen_segment, queen_txn, queen_partition
-- Locks      nothing: the caller holds the partition's row.
-- Cost       one probe a message and slot, one slice a hit; rewrites the group's frames.
-- Answers    base_offset (null when nothing was left to write) and what was left out:
--            positions from 0, the originals' ids, whether the original is in the group.
--
-- A hash hit is confirmed against the whole id in the original's frame; only where the
-- original is no longer retained does the hash decide, and the id is then nil.

CREATE OR REPLACE FUNCTION queen_segment_append_distinct_v1(
    p_partition_id bigint,
    p_frames       bytea,
    p_transactions text,
    p_flags        bytea,
    p_now          timestamptz,
    p_since        timestamptz,
    p_slot         smallint,
    OUT base_offset         bigint,
    OUT duplicate_positions integer[],
    OUT duplicate_ids       uuid[],
    OUT duplicate_inside    boolean[]
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_frames    text[]   := string_to_array(convert_from(p_frames, 'UTF8'), chr(30));
    v_texts     text[]   := string_to_array(p_transactions, chr(30));
    v_hashes    bigint[];
    v_kept      integer[];
    v_lane      queen_partition;
    v_first_id  uuid;
    v_created   timestamptz;
BEGIN
    SELECT * INTO v_lane FROM queen_partition WHERE id = p_partition_id;

    v_hashes := ARRAY(
        SELECT queen_txn_hash_v1(message.text)
          FROM unnest(v_texts) WITH ORDINALITY AS message(text, position)
         ORDER BY message.position);

    WITH message AS (
        SELECT given.position, given.text, given.hash,
               first_value(given.position) OVER (PARTITION BY given.text ORDER BY given.position)
                   AS first_position
          FROM unnest(v_texts, v_hashes) WITH ORDINALITY AS given(text, hash, position)
    ), original AS (
        -- For each distinct id the oldest stored message that really carries it.
        SELECT message.position, found.message_id
          FROM message
         CROSS JOIN LATERAL (
            SELECT CASE WHEN frame.text IS NULL THEN '00000000-0000-0000-0000-000000000000'
                        ELSE substr(frame.text, 8, 36) END::uuid AS message_id
              FROM queen_txn known
             CROSS JOIN LATERAL queen_frame_get_v1(p_partition_id, known.message_offset)
                     AS frame(text)
             WHERE known.partition_id = p_partition_id
               AND known.hash = message.hash
               AND known.created_at > p_since
               AND (frame.text IS NULL OR queen_frame_is_v1(frame.text, message.text))
             ORDER BY frame.text IS NULL, known.message_offset
             LIMIT 1) AS found
         WHERE message.position = message.first_position
    ), judged AS (
        SELECT message.position,
               original.message_id AS stored_id,
               CASE WHEN message.position <> message.first_position AND original.message_id IS NULL
                    THEN substr(v_frames[message.first_position], 8, 36)::uuid END AS inside_id
          FROM message
          LEFT JOIN original ON original.position = message.first_position
    )
    SELECT array_agg((judged.position - 1)::integer ORDER BY judged.position)
               FILTER (WHERE coalesce(judged.stored_id, judged.inside_id) IS NOT NULL),
           array_agg(coalesce(judged.stored_id, judged.inside_id) ORDER BY judged.position)
               FILTER (WHERE coalesce(judged.stored_id, judged.inside_id) IS NOT NULL),
           array_agg(judged.stored_id IS NULL ORDER BY judged.position)
               FILTER (WHERE coalesce(judged.stored_id, judged.inside_id) IS NOT NULL),
           array_agg(judged.position::integer ORDER BY judged.position)
               FILTER (WHERE coalesce(judged.stored_id, judged.inside_id) IS NULL)
      INTO duplicate_positions, duplicate_ids, duplicate_inside, v_kept
      FROM judged;

    IF v_kept IS NULL THEN
        RETURN;
    END IF;

    base_offset := v_lane.last_offset + 1;
    v_first_id := substr(v_frames[v_kept[1]], 8, 36)::uuid;
    v_created := CASE WHEN v_lane.last_id IS NULL OR v_first_id > v_lane.last_id
                      THEN greatest(p_now, v_lane.last_created_at)
                      ELSE greatest(p_now, date_trunc('milliseconds', v_lane.last_created_at)
                                           + interval '1 millisecond')
                 END;

    INSERT INTO queen_segment (partition_id, base_offset, end_offset, created_at, format,
                               frames, ends, flags)
    SELECT p_partition_id, base_offset, base_offset + cardinality(v_kept) - 1, v_created, 1,
           convert_to(string_agg(kept.frame, chr(30) ORDER BY kept.no), 'UTF8'),
           string_agg(int4send(kept.behind), ''::bytea ORDER BY kept.no),
           string_agg(substr(p_flags, kept.position, 1), ''::bytea ORDER BY kept.no)
      FROM (
        SELECT chosen.no, chosen.position, v_frames[chosen.position] AS frame,
               (sum(octet_length(v_frames[chosen.position])) OVER (ORDER BY chosen.no)
                + chosen.no - 1)::integer AS behind
          FROM unnest(v_kept) WITH ORDINALITY AS chosen(position, no)
      ) AS kept;

    INSERT INTO queen_txn (partition_id, hash, message_offset, created_at, slot)
    SELECT p_partition_id, v_hashes[chosen.position], base_offset + chosen.no - 1, p_now, p_slot
      FROM unnest(v_kept) WITH ORDINALITY AS chosen(position, no);

    UPDATE queen_partition
       SET last_offset = base_offset + cardinality(v_kept) - 1,
           last_created_at = v_created,
           last_id = substr(v_frames[v_kept[cardinality(v_kept)]], 8, 36)::uuid,
           last_write_at = CASE WHEN last_write_at > p_now - interval '1 second'
                                THEN last_write_at ELSE p_now END,
           oldest_live_at = coalesce(oldest_live_at, v_created)
     WHERE id = p_partition_id;
END;
$$;
