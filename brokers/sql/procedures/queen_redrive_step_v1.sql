-- queen_redrive_step_v1: move some dead letters of a redrive into logs, all or nothing.
--
-- Called by  brokers/store/redrive_calls.py, redrive_step()
-- Reads      queen_lease, queen_redrive, queen_dead_letter, queen_partition, and what
--            queen_message_push_v1 reads
-- Writes     what queen_message_push_v1 writes; queen_dead_letter, queen_redrive
-- Locks      what queen_lease_held_v1 holds, the job's row, the destinations' partition rows in
--            ascending id, the dead letters in (partition, group, offset), waiting at most
--            p_wait_ms for each.
-- Cost       one push of a group a destination, and a probe a letter.
-- Answers    one row:
--              moved    the letters are messages now, and the job stands behind them
--              changed  a letter is gone since, or the job stands elsewhere: read it again
--              stopped  the job does not run any more
--              fenced   somebody else leads
--            `kept` names letters (from 1) whose new transactionId the destination had already:
--            nothing was written for them and they stay.
-- Raises     QN001 when a destination is gone or was configured since: reload, repeat;
--            QN004 when one enforces its maxSize and has no room for its letters;
--            55P03 when a lock is not had in time. Nothing has happened then.
--
-- The job's place moves in this very transaction: a broker that is killed at any moment leaves
-- a job whose letters either moved or are still to be moved. p_letter_groups says which group
-- a letter is a message of, in the order of its messages.
-- The pace: n letters take n/rate seconds. A second that was lost is caught up, no more.

CREATE OR REPLACE FUNCTION queen_redrive_step_v1(
    p_token         bigint,
    p_id            uuid,
    p_from_at       timestamptz,
    p_from_id       uuid,
    p_reached_at    timestamptz,
    p_reached_id    uuid,
    p_looks         integer,
    p_skipped       integer,
    p_problem       text,
    p_at_end        boolean,
    p_letters       uuid[],
    p_letter_groups integer[],
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
RETURNS TABLE (verdict text, kept integer[])
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_job   queen_redrive;
    v_found bigint;
    v_push  record;
    v_kept  integer[] := '{}';
    v_moved bigint := 0;
BEGIN
    IF NOT queen_lease_held_v1('redrive', p_token) THEN
        RETURN QUERY SELECT 'fenced', NULL::integer[];
        RETURN;
    END IF;
    PERFORM set_config('lock_timeout', p_wait_ms::text, true);
    SELECT * INTO v_job FROM queen_redrive WHERE id = p_id AND state = 'running' FOR UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'stopped', NULL::integer[];
        RETURN;
    END IF;
    IF (v_job.reached_at, v_job.reached_id) IS DISTINCT FROM (p_from_at, p_from_id) THEN
        RETURN QUERY SELECT 'changed', NULL::integer[];
        RETURN;
    END IF;

    IF cardinality(p_letters) > 0 THEN
        PERFORM 1
           FROM queen_partition
          WHERE id = ANY (p_partition_ids)
          ORDER BY id
            FOR UPDATE;
        SELECT count(*) INTO v_found
          FROM (
            SELECT 1
              FROM queen_dead_letter letter
             WHERE letter.id = ANY (p_letters)
               AND EXISTS (SELECT FROM queen_partition lane WHERE lane.id = letter.partition_id)
             ORDER BY letter.partition_id, letter.consumer_group, letter.message_offset
               FOR UPDATE OF letter
          ) AS held;
        IF v_found <> cardinality(p_letters) THEN
            RETURN QUERY SELECT 'changed', NULL::integer[];
            RETURN;
        END IF;

        FOR v_push IN
            SELECT * FROM queen_message_push_v1(
                p_partition_ids, p_queue_ids, p_versions, p_frames, p_ends, p_transactions,
                p_flags, p_first_ids, p_last_ids, p_wait_ms, true, NULL)
        LOOP
            IF v_push.verdict = 'full' THEN
                RAISE EXCEPTION 'the queue is full (maxSize)' USING ERRCODE = 'QN004';
            ELSIF v_push.verdict <> 'stored' THEN
                RAISE EXCEPTION 'redrive: a destination has changed' USING ERRCODE = 'QN001';
            END IF;
            IF v_push.duplicate_positions IS NOT NULL THEN
                v_kept := v_kept || ARRAY(
                    SELECT letter.no::integer
                      FROM (
                        SELECT mine.no, row_number() OVER (ORDER BY mine.no) - 1 AS position
                          FROM unnest(p_letter_groups) WITH ORDINALITY AS mine(group_no, no)
                         WHERE mine.group_no = v_push.group_no
                      ) AS letter
                     WHERE letter.position = ANY (v_push.duplicate_positions));
            END IF;
        END LOOP;
        DELETE FROM queen_dead_letter
         WHERE id = ANY (ARRAY(
               SELECT letter.id
                 FROM unnest(p_letters) WITH ORDINALITY AS letter(id, no)
                WHERE letter.no <> ALL (v_kept)));
        GET DIAGNOSTICS v_moved = ROW_COUNT;
    END IF;

    UPDATE queen_redrive
       SET reached_at = p_reached_at, reached_id = p_reached_id,
           looked_at = looked_at + p_looks, moved = moved + v_moved,
           skipped = skipped + p_skipped + cardinality(v_kept),
           problem = coalesce(p_problem, CASE WHEN v_kept <> '{}'
                              THEN 'already in the destination: the letter was kept' END, problem),
           state = CASE WHEN p_at_end THEN 'done' ELSE state END,
           finished_at = CASE WHEN p_at_end THEN clock_timestamp() END,
           updated_at = clock_timestamp(),
           next_at = greatest(next_at, clock_timestamp() - interval '1 second')
                     + make_interval(secs => v_moved::double precision / rate)
     WHERE id = p_id;
    RETURN QUERY SELECT 'moved', v_kept;
END;
$$;
