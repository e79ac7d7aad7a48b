-- queen_spool_replay_v1: store a range of a spool file's records and move its mark, in one.
--
-- Called by  brokers/store/spool_calls.py, replay()
-- Reads      queen_partition, queen_queue, queen_txn, queen_segment, queen_txn_slot, queen_spool
-- Writes     what queen_message_push_v1 writes; queen_spool
-- Locks      partition rows in ascending id, in one statement, waiting at most p_wait_ms for
--            each; then the mark's row.
-- Cost       a push call for each time that a partition is named; a probe of the hour's slots
--            a message, of all slots where one was seen before, and a slice a hit. Records of unknown outcome
--            whose slots were truncated cost a look at twenty minutes of their partition.
-- Answers    one row per group that holds duplicates: its number as asked, from 1, and their
--            positions, from 0. Everything else is stored.
-- Raises     QN001 the queue or partition is gone or was configured since: reload, repeat
--            QN020 the mark is not at p_from: somebody else has moved it, read it again
--            55P03 when somebody holds a partition or the mark for too long
--
-- Whole or not at all: what raises has written nothing, and the mark tells which it was when
-- an answer is lost. An older try that still runs in another backend either has the partitions
-- first, and we find the mark moved, or waits for us and finds it moved itself.
--
-- Groups are as queen_message_push_v1 takes them, but a partition may be named more than
-- once: the caller cuts where ids do not rise, and its groups are stored in their order.
-- p_ids, p_accepted_us and p_unclear have one element a message, group after group.
--
-- A transactionId is looked for in the window before and behind its acceptance, not before
-- the replay, and is remembered as accepted then: two records of one spool judge each other
-- by their own times, and so does a push that comes later. An acceptance in the future is now.
-- The message id is looked for whatever the window, also when it is 0. A record is `unclear`
-- when its push was sent and nobody knows whether it committed; where its transaction rows may
-- be gone, the segments that were stored ten minutes around its acceptance decide.

CREATE OR REPLACE FUNCTION queen_spool_replay_v1(
    p_spool_id      uuid,
    p_file          text,
    p_from          bigint,
    p_server_id     text,
    p_oldest_us     bigint,
    p_ids           uuid[],
    p_accepted_us   bigint[],
    p_unclear       boolean[],
    p_partition_ids bigint[],
    p_queue_ids     bigint[],
    p_versions      bigint[],
    p_frames        bytea[],
    p_ends          bytea[],
    p_transactions  text[],
    p_flags         bytea[],
    p_first_ids     uuid[],
    p_last_ids      uuid[],
    p_wait_ms       integer
)
RETURNS TABLE (group_no integer, duplicate_positions integer[])
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_wait_ms    integer := greatest(p_wait_ms, 1);
    v_done       bigint;
    v_stale      boolean;
    v_mixed      boolean;
    v_hour       boolean;
    v_classes    smallint[];
    v_lanes      bigint[];
    v_seen       boolean := true;
    v_windows    bigint[];
    v_rounds     bigint[];
    v_now        timestamptz;
    v_nos        integer[];
    v_positions  integer[];
    v_texts      text[];
    v_hashes     bigint[];
    v_accepted   timestamptz[];
    v_duplicates integer[] := '{}';
    v_kept_ids   uuid[];
    v_kept_at    timestamptz[];
    v_frames     bytea[]  := p_frames;
    v_ends       bytea[]  := p_ends;
    v_texts_of   text[]   := p_transactions;
    v_flags      bytea[]  := p_flags;
    v_first_ids  uuid[]   := p_first_ids;
    v_last_ids   uuid[]   := p_last_ids;
    v_group      integer;
    v_kept       integer[];
    v_message    record;
    v_cut        record;
BEGIN
    PERFORM set_config('lock_timeout', v_wait_ms::text, true);
    PERFORM 1
       FROM queen_partition lane
      WHERE lane.id = ANY (p_partition_ids)
      ORDER BY lane.id
        FOR UPDATE;

    -- Behind the locks: whoever stored this range meanwhile is seen, before any work is done.
    -- The last step judges again, and that is the one that counts.
    SELECT mark.done INTO v_done
      FROM queen_spool mark
     WHERE mark.spool_id = p_spool_id AND mark.file = p_file;
    IF coalesce(v_done, 0) <> p_from THEN
        RAISE EXCEPTION 'the mark of spool file % is not at %', p_file, p_from
            USING ERRCODE = 'QN020';
    END IF;

    SELECT bool_or(queue.id IS NULL OR queue.config_version <> asked.version),
           bool_or(queue.txn_class_mixed),
           NOT bool_or(queue.txn_class > 0 OR queue.txn_class_mixed),
           array_agg(DISTINCT queue.txn_class),
           array_agg(queue.dedup_window_seconds ORDER BY asked.no),
           array_agg(asked.round ORDER BY asked.no)
      INTO v_stale, v_mixed, v_hour, v_classes, v_windows, v_rounds
      FROM (
        SELECT given.partition_id, given.queue_id, given.version, given.no,
               row_number() OVER (PARTITION BY given.partition_id ORDER BY given.no) AS round
          FROM unnest(p_partition_ids, p_queue_ids, p_versions)
               WITH ORDINALITY AS given(partition_id, queue_id, version, no)
      ) AS asked
      LEFT JOIN queen_partition lane
             ON lane.id = asked.partition_id AND lane.queue_id = asked.queue_id
      LEFT JOIN queen_queue queue ON queue.id = lane.queue_id;
    IF v_stale THEN
        RAISE EXCEPTION 'the queue or partition was changed or deleted meanwhile'
            USING ERRCODE = 'QN001';
    END IF;

    v_now := clock_timestamp();
    SELECT array_agg(message.no ORDER BY message.no, message.position),
           array_agg(message.position ORDER BY message.no, message.position),
           array_agg(message.text ORDER BY message.no, message.position),
           array_agg(queen_txn_hash_v1(message.text) ORDER BY message.no, message.position),
           array_agg(message.partition_id ORDER BY message.no, message.position)
      INTO v_nos, v_positions, v_texts, v_hashes, v_lanes
      FROM (
        SELECT asked.no::integer AS no, message.position::integer AS position, message.text,
               asked.partition_id
          FROM unnest(p_partition_ids, p_transactions)
               WITH ORDINALITY AS asked(partition_id, transactions, no)
         CROSS JOIN LATERAL string_to_table(asked.transactions, chr(30))
                WITH ORDINALITY AS message(text, position)
      ) AS message;
    IF cardinality(v_nos) <> cardinality(p_ids) OR cardinality(v_nos) <> cardinality(p_accepted_us)
    THEN
        RAISE EXCEPTION 'spool replay: % messages, % ids, % times', cardinality(v_nos),
            cardinality(p_ids), cardinality(p_accepted_us);
    END IF;
    v_accepted := ARRAY(
        SELECT least(to_timestamp(given.us / 1000000.0), v_now)
          FROM unnest(p_accepted_us) WITH ORDINALITY AS given(us, no)
         ORDER BY given.no);

    -- The usual case: no hash has been seen. As in queen_message_push_v1 the hour's slots are
    -- named, for a plan over the partitioned table opens all of them.
    IF v_hour THEN
        v_seen := EXISTS (
            SELECT FROM unnest(v_lanes, v_hashes) AS message(partition_id, hash)
             CROSS JOIN LATERAL (
                SELECT FROM queen_txn_0 known
                 WHERE known.partition_id = message.partition_id AND known.hash = message.hash
                UNION ALL
                SELECT FROM queen_txn_1 known
                 WHERE known.partition_id = message.partition_id AND known.hash = message.hash
                UNION ALL
                SELECT FROM queen_txn_2 known
                 WHERE known.partition_id = message.partition_id AND known.hash = message.hash
             ) AS known);
    END IF;

    -- Who has been stored before? Heads are read once for each id that was, and compared
    -- with what is asked: as far as the id's literal and what follows it.
    IF v_seen THEN
        v_duplicates := ARRAY(
            WITH message AS MATERIALIZED (
                SELECT given.index::integer AS index, p_partition_ids[given.no] AS partition_id,
                       v_windows[given.no] AS window_s, given.hash, given.id, given.accepted_at,
                       convert_to(given.text || ',"traceId":', 'UTF8') AS literal
                  FROM unnest(v_nos, v_texts, v_hashes, p_ids, v_accepted)
                       WITH ORDINALITY AS given(no, text, hash, id, accepted_at, index)
            ), hit AS MATERIALIZED (
                SELECT asked.partition_id, asked.hash, known.created_at,
                       queen_frame_head_v1(asked.partition_id, known.message_offset,
                                           61 + asked.literal_bytes) AS head
                  FROM (
                    SELECT message.partition_id, message.hash,
                           max(octet_length(message.literal)) AS literal_bytes
                      FROM message
                     GROUP BY message.partition_id, message.hash
                  ) AS asked
                 CROSS JOIN LATERAL (
                    SELECT known.message_offset, known.created_at
                      FROM queen_txn known
                     WHERE known.partition_id = asked.partition_id AND known.hash = asked.hash
                    OFFSET 0) AS known
            )
            SELECT message.index
              FROM message
             WHERE EXISTS (
                   SELECT FROM hit
                    WHERE hit.partition_id = message.partition_id AND hit.hash = message.hash
                      AND (substr(hit.head, 8, 36) = convert_to(message.id::text, 'UTF8')
                           -- An original that is no longer retained is known by its hash alone.
                           OR (hit.created_at
                                   > message.accepted_at - make_interval(secs => message.window_s)
                               AND hit.created_at
                                   < message.accepted_at + make_interval(secs => message.window_s)
                               AND (hit.head IS NULL
                                    OR substr(hit.head, 62, octet_length(message.literal))
                                       = message.literal)))));
    END IF;

    IF true = ANY (p_unclear) THEN
        v_duplicates := v_duplicates || queen_spool_unclear_v1(
            ARRAY(SELECT p_partition_ids[message.no]
                    FROM unnest(v_nos) WITH ORDINALITY AS message(no, index)
                   ORDER BY message.index),
            p_ids, v_accepted, p_unclear, v_duplicates, v_classes, v_mixed);
    END IF;

    -- Twice in this very range: the earlier one counts, if it is stored.
    IF EXISTS (
        SELECT FROM unnest(v_lanes, v_hashes) AS message(partition_id, hash)
         GROUP BY message.partition_id, message.hash
        HAVING count(*) > 1)
    THEN
        FOR v_message IN
            SELECT twin.index, twin.window_s, twin.id, twin.accepted_at, twin.nth = 1 AS is_first
              FROM (
                SELECT given.index::integer AS index, v_windows[given.no] AS window_s, given.id,
                       given.accepted_at,
                       count(*) OVER same AS twins,
                       row_number() OVER (same ORDER BY given.index) AS nth,
                       p_partition_ids[given.no] AS partition_id, given.text
                  FROM unnest(v_nos, v_texts, p_ids, v_accepted)
                       WITH ORDINALITY AS given(no, text, id, accepted_at, index)
                 WHERE given.index <> ALL (v_duplicates)
                WINDOW same AS (PARTITION BY p_partition_ids[given.no], given.text)
              ) AS twin
             WHERE twin.twins > 1
             ORDER BY twin.partition_id, twin.text, twin.index
        LOOP
            IF v_message.is_first THEN
                v_kept_ids := '{}';
                v_kept_at := '{}';
            END IF;
            IF v_message.id = ANY (v_kept_ids) OR EXISTS (
                SELECT FROM unnest(v_kept_at) AS kept(at)
                 WHERE kept.at > v_message.accepted_at - make_interval(secs => v_message.window_s)
                   AND kept.at < v_message.accepted_at + make_interval(secs => v_message.window_s))
            THEN
                v_duplicates := v_duplicates || v_message.index;
            ELSE
                v_kept_ids := v_kept_ids || v_message.id;
                v_kept_at := v_kept_at || v_message.accepted_at;
            END IF;
        END LOOP;
    END IF;

    IF cardinality(v_duplicates) > 0 THEN
        v_flags := coalesce(v_flags, array_fill(NULL::bytea, ARRAY[cardinality(p_frames)]));
        FOR group_no, duplicate_positions IN
            SELECT message.no, array_agg(message.position - 1 ORDER BY message.position)
              FROM unnest(v_nos, v_positions) WITH ORDINALITY AS message(no, position, index)
             WHERE message.index = ANY (v_duplicates)
             GROUP BY message.no
             ORDER BY message.no
        LOOP
            RETURN NEXT;
            v_group := group_no;
            SELECT array_agg(message.position ORDER BY message.position) AS positions,
                   (array_agg(message.id ORDER BY message.position))[1] AS first_id,
                   (array_agg(message.id ORDER BY message.position DESC))[1] AS last_id
              INTO v_message
              FROM unnest(v_nos, v_positions, p_ids)
                   WITH ORDINALITY AS message(no, position, id, index)
             WHERE message.no = v_group AND message.index <> ALL (v_duplicates);
            v_kept := v_message.positions;
            IF v_kept IS NULL THEN
                v_rounds[v_group] := 0;
                CONTINUE;
            END IF;
            SELECT * INTO v_cut
              FROM queen_frames_pick_v1(p_frames[v_group], p_ends[v_group],
                                        p_transactions[v_group], p_flags[v_group], v_kept);
            v_frames[v_group] := v_cut.frames;
            v_ends[v_group] := v_cut.ends;
            v_texts_of[v_group] := v_cut.transactions;
            v_flags[v_group] := v_cut.flags;
            v_first_ids[v_group] := v_message.first_id;
            v_last_ids[v_group] := v_message.last_id;
        END LOOP;
    END IF;

    IF cardinality(v_duplicates) = 0 AND 1 = ALL (v_rounds) THEN
        SELECT bool_or(pushed.verdict <> 'stored') INTO v_stale
          FROM queen_message_push_v1(
                   p_partition_ids, p_queue_ids, p_versions, p_frames, p_ends, p_transactions,
                   p_flags, p_first_ids, p_last_ids, v_wait_ms, false, v_accepted) AS pushed;
    ELSE
        -- A push names a partition once, so the second group of one waits for the second round.
        FOR v_round IN 1 .. (SELECT max(given.round) FROM unnest(v_rounds) AS given(round)) LOOP
            SELECT bool_or(pushed.verdict <> 'stored') INTO v_stale
              FROM (
                SELECT array_agg(given.partition_id ORDER BY given.no) AS partition_ids,
                       array_agg(given.queue_id ORDER BY given.no) AS queue_ids,
                       array_agg(given.version ORDER BY given.no) AS versions,
                       array_agg(given.frames ORDER BY given.no) AS frames,
                       array_agg(given.ends ORDER BY given.no) AS ends,
                       array_agg(given.texts ORDER BY given.no) AS texts,
                       array_agg(given.flags ORDER BY given.no) AS flags,
                       array_agg(given.first_id ORDER BY given.no) AS first_ids,
                       array_agg(given.last_id ORDER BY given.no) AS last_ids
                  FROM unnest(p_partition_ids, p_queue_ids, p_versions, v_frames, v_ends,
                              v_texts_of, v_flags, v_first_ids, v_last_ids, v_rounds)
                       WITH ORDINALITY AS given(partition_id, queue_id, version, frames, ends,
                                                texts, flags, first_id, last_id, round, no)
                 WHERE given.round = v_round
              ) AS flush
             CROSS JOIN LATERAL queen_message_push_v1(
                   flush.partition_ids, flush.queue_ids, flush.versions, flush.frames,
                   flush.ends, flush.texts, flush.flags, flush.first_ids, flush.last_ids,
                   v_wait_ms, false,
                   ARRAY(SELECT message.accepted_at
                           FROM unnest(v_nos, v_accepted)
                                WITH ORDINALITY AS message(no, accepted_at, index)
                          WHERE v_rounds[message.no] = v_round
                            AND message.index <> ALL (v_duplicates)
                          ORDER BY message.index)) AS pushed;
            EXIT WHEN v_stale;
        END LOOP;
    END IF;
    IF v_stale THEN
        RAISE EXCEPTION 'the queue or partition was changed or deleted meanwhile'
            USING ERRCODE = 'QN001';
    END IF;

    PERFORM queen_spool_pass_v1(p_spool_id, p_file, p_from, cardinality(p_ids), p_server_id,
                                p_oldest_us, v_wait_ms);
END;
$$;
