-- queen_message_list_v1: a page of the newest messages of a tenant, and what became of each.
--
-- Called by  brokers/store/message_calls.py, message_list()
-- Reads      queen_queue, queen_partition, queen_cursor, queen_group, queen_segment,
--            queen_dead_letter
-- Locks      nothing
-- Cost       at most p_lanes_max partitions, in each the newest segments up to the end of the
--            page; with a status at most p_looks_max messages are judged. Frames are sliced for
--            the page alone, and whole only within p_bytes_max together.
-- Answers    one row a message, the newest first, and behind them one row without an uid:
--            whether a queue-mode cursor was met, how many bus groups the queues have,
--            whether there may be more that was not looked at, and, as created_at, when the last
--            of p_lanes_max partitions was written: partitions that were not looked at were
--            written before that; null when there are none.
--
-- dead_letter: a letter of any group lies at its place. completed: the queue-mode cursor has
-- passed it. processing: it is in a queue-mode lease that is live. pending: else.
-- A frame beyond p_bytes_max is cut (`whole` is false): its head is there, its payload is not.

CREATE OR REPLACE FUNCTION queen_message_list_v1(
    p_tenant_id uuid,
    p_queue     text,
    p_partition text,
    p_namespace text,
    p_task      text,
    p_status    text,
    p_from      timestamptz,
    p_to        timestamptz,
    p_limit     integer,
    p_offset    integer,
    p_lanes_max integer,
    p_looks_max integer,
    p_bytes_max bigint
)
RETURNS TABLE (
    uid uuid, partition_name text, queue_name text, namespace text, task text, priority bigint,
    base_offset bigint, message_offset bigint, created_at timestamptz, frame bytea,
    whole boolean, encrypted boolean, status text, queue_status text, consumed_by integer,
    groups integer, lease_expires_at timestamptz, queue_mode boolean, truncated boolean
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_now    timestamptz := clock_timestamp();
    v_lanes  bigint[];
    v_looks  integer := CASE WHEN p_status IS NULL THEN p_offset + p_limit ELSE p_looks_max END;
    v_letter boolean := coalesce(p_status = 'dead_letter', false);
    -- Room for the ids and the subject of a message, which lie before its payload.
    v_head_bytes constant integer := 16384;
    v_ids      bigint[];
    v_bases    bigint[];
    v_offsets  bigint[];
    v_statuses text[];
    v_queue_statuses text[];
    v_judged   bigint;
BEGIN
    -- Where to look, as arrays: the statement below is planned for few partitions.
    v_lanes := ARRAY(
        SELECT lane.partition_id
          FROM queen_message_lanes_v1(p_tenant_id, p_queue, p_partition, p_namespace, p_task,
                                      p_from, v_letter, p_lanes_max) AS lane);

    WITH lane AS MATERIALIZED (
        SELECT lane.id, lane.log_start, lane.last_offset, lane.last_created_at,
               lane.oldest_live_at,
               greatest(p_from, v_now - make_interval(secs => greatest(
                   queue.dedup_window_seconds, queue.completed_retention_seconds, 900))) AS since,
               queue_mode.committed,
               CASE WHEN queue_mode.lease_expires_at > v_now THEN queue_mode.batch_end END
                   AS leased_to,
               groups.letter_groups
          FROM unnest(v_lanes) AS asked(id)
          JOIN queen_partition lane ON lane.id = asked.id
          JOIN queen_queue queue ON queue.id = lane.queue_id
          LEFT JOIN LATERAL (
            SELECT held.committed, held.lease_expires_at, held.batch_end
              FROM queen_cursor held
             WHERE held.partition_id = lane.id AND held.consumer_group = '__QUEUE_MODE__'
             LIMIT 1
         ) AS queue_mode ON true
         CROSS JOIN LATERAL (
            -- From one group to the next in the index, however many letters each has.
            WITH RECURSIVE who AS (
                (SELECT letter.consumer_group
                   FROM queen_dead_letter letter
                  WHERE letter.partition_id = lane.id
                  ORDER BY letter.consumer_group
                  LIMIT 1)
                UNION ALL
                SELECT later.consumer_group
                  FROM who
                 CROSS JOIN LATERAL (
                    SELECT letter.consumer_group
                      FROM queen_dead_letter letter
                     WHERE letter.partition_id = lane.id
                       AND letter.consumer_group > who.consumer_group
                     ORDER BY letter.consumer_group
                     LIMIT 1
                 ) AS later
            )
            SELECT coalesce(array_agg(who.consumer_group), '{}') AS letter_groups FROM who
         ) AS groups
    ), span AS MATERIALIZED (
        -- From which offset to which: by time, and by what the status says of the cursor.
        SELECT lane.*,
               greatest(
                   CASE WHEN lane.oldest_live_at >= lane.since THEN lane.log_start
                        ELSE queen_segment_since_v1(lane.id, lane.since) END,
                   CASE p_status
                        WHEN 'pending' THEN coalesce(lane.leased_to, lane.committed, -1) + 1
                        WHEN 'processing' THEN coalesce(lane.committed, -1) + 1
                   END) AS low,
               least(
                   CASE WHEN lane.last_created_at < p_to THEN lane.last_offset
                        ELSE queen_segment_since_v1(lane.id, p_to) - 1 END,
                   CASE p_status
                        WHEN 'completed' THEN coalesce(lane.committed, -1)
                        WHEN 'processing' THEN coalesce(lane.leased_to, -1)
                   END) AS high
          FROM lane
    ), piece AS (
        SELECT span.id, segment.base_offset, segment.created_at,
               greatest(segment.base_offset, span.low) AS first,
               least(segment.end_offset, span.high) AS last
          FROM span
         CROSS JOIN LATERAL (
            SELECT newest.base_offset, newest.end_offset, newest.created_at
              FROM queen_segment newest
             WHERE newest.partition_id = span.id
               -- queen_segment_base_v1, without the cost of a call for each partition.
               AND newest.base_offset >= coalesce(
                   (SELECT held.base_offset
                      FROM queen_segment held
                     WHERE held.partition_id = span.id AND held.base_offset <= span.low
                     ORDER BY held.base_offset DESC
                     LIMIT 1), span.low)
               AND newest.base_offset <= span.high
               AND newest.end_offset >= span.low
             ORDER BY newest.base_offset DESC
             LIMIT v_looks
         ) AS segment
         WHERE NOT v_letter
        UNION ALL
        SELECT DISTINCT span.id, segment.base_offset, segment.created_at, letter.message_offset,
               letter.message_offset
          FROM span
         CROSS JOIN LATERAL unnest(span.letter_groups) AS who(consumer_group)
         CROSS JOIN LATERAL (
            SELECT newest.message_offset
              FROM queen_dead_letter newest
             WHERE newest.partition_id = span.id
               AND newest.consumer_group = who.consumer_group
               AND newest.message_offset BETWEEN span.low AND span.high
             ORDER BY newest.message_offset DESC
             LIMIT p_offset + p_limit
         ) AS letter
         CROSS JOIN LATERAL (
            SELECT held.base_offset, held.created_at, held.end_offset
              FROM queen_segment held
             WHERE held.partition_id = span.id AND held.base_offset <= letter.message_offset
             ORDER BY held.base_offset DESC
             LIMIT 1
         ) AS segment
         WHERE v_letter AND segment.end_offset >= letter.message_offset
    ), cut AS (
        SELECT piece.*,
               sum(piece.last - piece.first + 1) OVER (
                   ORDER BY piece.created_at DESC, piece.id DESC, piece.last DESC)
               - (piece.last - piece.first + 1) AS before
          FROM piece
    ), judged AS (
        SELECT span.id, cut.base_offset, cut.created_at, message.no AS message_offset,
               CASE WHEN message.no <= span.committed THEN 'completed'
                    WHEN message.no <= span.leased_to THEN 'processing'
                    ELSE 'pending' END AS queue_status,
               EXISTS (
                   SELECT FROM unnest(span.letter_groups) AS who(consumer_group)
                     JOIN queen_dead_letter letter
                       ON letter.partition_id = span.id
                      AND letter.consumer_group = who.consumer_group
                      AND letter.message_offset = message.no) AS dead
          FROM cut
          JOIN span ON span.id = cut.id
         CROSS JOIN LATERAL generate_series(cut.first, cut.last) AS message(no)
         WHERE cut.before < v_looks
           AND cut.before + cut.last - message.no < v_looks
    ), page AS (
        SELECT judged.*,
               CASE WHEN judged.dead THEN 'dead_letter' ELSE judged.queue_status END AS status
          FROM judged
         WHERE p_status IS NULL
            OR CASE WHEN judged.dead THEN 'dead_letter' ELSE judged.queue_status END = p_status
         ORDER BY judged.created_at DESC, judged.id DESC, judged.message_offset DESC
         LIMIT p_limit OFFSET p_offset
    )
    SELECT array_agg(page.id ORDER BY page.created_at DESC, page.id DESC, page.message_offset DESC),
           array_agg(page.base_offset
                     ORDER BY page.created_at DESC, page.id DESC, page.message_offset DESC),
           array_agg(page.message_offset
                     ORDER BY page.created_at DESC, page.id DESC, page.message_offset DESC),
           array_agg(page.status
                     ORDER BY page.created_at DESC, page.id DESC, page.message_offset DESC),
           array_agg(page.queue_status
                     ORDER BY page.created_at DESC, page.id DESC, page.message_offset DESC),
           (SELECT count(*) FROM judged)
      INTO v_ids, v_bases, v_offsets, v_statuses, v_queue_statuses, v_judged
      FROM page;

    RETURN QUERY
    WITH placed AS (
        SELECT page.*, segment.created_at,
               CASE WHEN page.message_offset = page.base_offset THEN 0
                    ELSE queen_int4_at_v1(segment.ends,
                                          page.message_offset - page.base_offset - 1) + 1
               END::integer AS first,
               queen_int4_at_v1(segment.ends, page.message_offset - page.base_offset)::integer
                   AS behind
          FROM unnest(v_ids, v_bases, v_offsets, v_statuses, v_queue_statuses) WITH ORDINALITY
               AS page(id, base_offset, message_offset, status, queue_status, no)
          JOIN queen_segment segment
            ON segment.partition_id = page.id AND segment.base_offset = page.base_offset
    ), sized AS (
        -- Lengths first: a payload is only fetched when it is part of the page.
        SELECT placed.*,
               sum(placed.behind - placed.first) OVER (ORDER BY placed.no) <= p_bytes_max
               OR placed.no = 1 AS whole
          FROM placed
    )
    SELECT lane.uid, lane.name, queue.name, queue.namespace, queue.task, queue.priority,
           sized.base_offset, sized.message_offset, sized.created_at,
           substr(segment.frames, sized.first + 1,
                  CASE WHEN sized.whole THEN sized.behind - sized.first
                       ELSE least(sized.behind - sized.first, v_head_bytes) END),
           sized.whole,
           coalesce(get_byte(segment.flags,
                             (sized.message_offset - sized.base_offset)::integer) & 1 = 1, false),
           sized.status, sized.queue_status, bus.consumed_by, bus.groups,
           CASE WHEN sized.queue_status = 'processing' THEN queue_mode.lease_expires_at END,
           NULL::boolean, NULL::boolean
      FROM sized
      JOIN queen_partition lane ON lane.id = sized.id
      JOIN queen_queue queue ON queue.id = lane.queue_id
      JOIN queen_segment segment
        ON segment.partition_id = sized.id AND segment.base_offset = sized.base_offset
      LEFT JOIN LATERAL (
        SELECT held.lease_expires_at
          FROM queen_cursor held
         WHERE held.partition_id = sized.id AND held.consumer_group = '__QUEUE_MODE__'
         LIMIT 1
     ) AS queue_mode ON true
     CROSS JOIN LATERAL (
        SELECT count(*)::integer AS groups,
               (count(*) FILTER (WHERE reader.committed >= sized.message_offset))::integer
                   AS consumed_by
          FROM queen_group known
          LEFT JOIN queen_cursor reader
                 ON reader.partition_id = sized.id
                AND reader.consumer_group = known.consumer_group
         WHERE known.queue_id = queue.id AND known.consumer_group <> '__QUEUE_MODE__'
     ) AS bus
     ORDER BY sized.no;

    RETURN QUERY
    SELECT NULL::uuid, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint,
           NULL::bigint,
           (SELECT lane.last_write_at FROM queen_partition lane WHERE lane.id = v_lanes[p_lanes_max]),
           NULL::bytea, NULL::boolean, NULL::boolean, NULL::text, NULL::text, NULL::integer,
           (SELECT count(DISTINCT known.consumer_group)::integer
              FROM queen_group known
             WHERE known.consumer_group <> '__QUEUE_MODE__'
               AND known.queue_id = ANY (ARRAY(
                   SELECT queue.id
                     FROM queen_message_queues_v1(p_tenant_id, p_queue, p_namespace, p_task,
                                                  p_from, v_now) AS queue
                    LIMIT p_lanes_max))),
           NULL::timestamptz,
           EXISTS (SELECT FROM queen_cursor queue_mode
                    WHERE queue_mode.partition_id = ANY (v_lanes)
                      AND queue_mode.consumer_group = '__QUEUE_MODE__'),
           coalesce(cardinality(v_ids), 0) < p_limit
               AND (cardinality(v_lanes) >= p_lanes_max
                    OR p_status IS NOT NULL AND v_judged >= v_looks);
END;
$$;
