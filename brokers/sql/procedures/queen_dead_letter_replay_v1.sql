-- queen_dead_letter_replay_v1: move one dead letter back into a log, all or nothing.
--
-- Called by  brokers/store/management_calls.py, dead_letter_replay()
-- Reads      queen_dead_letter, queen_partition, queen_txn, and what queen_message_push_v1 reads
-- Writes     what queen_message_push_v1 writes; queen_dead_letter
-- Locks      the destination's partition row, waiting at most p_wait_ms, then the dead
--            letter's row: of two replays one moves it and the other finds it gone.
-- Cost       one push of one message, one row.
-- Answers    one row:
--              moved      written at message_offset, and the dead letter is no more
--              duplicate  the destination's dedup window holds this transactionId, at
--                         message_offset (null when that is not known): nothing written
--              stale      the destination is gone or was configured since: reload, repeat
--              gone       no such dead letter, or the queue it belongs to was deleted
-- Raises     QN004 when the destination enforces its maxSize and has no room
--            55P03 when a lock is not had in time
--
-- p_transaction is the canonical literal that is also in p_frames.

CREATE OR REPLACE FUNCTION queen_dead_letter_replay_v1(
    p_id           uuid,
    p_partition_id bigint,
    p_queue_id     bigint,
    p_version      bigint,
    p_frames       bytea,
    p_ends         bytea,
    p_transaction  text,
    p_flags        bytea,
    p_message_id   uuid,
    p_wait_ms      integer
)
RETURNS TABLE (verdict text, message_offset bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_push record;
BEGIN
    PERFORM set_config('lock_timeout', p_wait_ms::text, true);
    PERFORM 1 FROM queen_partition WHERE id = p_partition_id FOR UPDATE;
    PERFORM 1
       FROM queen_dead_letter letter
      WHERE letter.id = p_id
        AND EXISTS (SELECT FROM queen_partition lane WHERE lane.id = letter.partition_id)
        FOR UPDATE OF letter;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'gone', NULL::bigint;
        RETURN;
    END IF;

    SELECT * INTO v_push
      FROM queen_message_push_v1(
               ARRAY[p_partition_id], ARRAY[p_queue_id], ARRAY[p_version], ARRAY[p_frames],
               ARRAY[p_ends], ARRAY[p_transaction], ARRAY[p_flags], ARRAY[p_message_id],
               ARRAY[p_message_id], p_wait_ms, true, NULL);
    IF v_push.verdict = 'full' THEN
        RAISE EXCEPTION 'the queue is full (maxSize)' USING ERRCODE = 'QN004';
    ELSIF v_push.verdict <> 'stored' THEN
        RETURN QUERY SELECT 'stale', NULL::bigint;
    ELSIF v_push.duplicate_positions IS NOT NULL THEN
        RETURN QUERY
        SELECT 'duplicate',
               (SELECT max(known.message_offset)
                  FROM queen_txn known
                 WHERE known.partition_id = p_partition_id
                   AND known.hash = queen_txn_hash_v1(p_transaction));
    ELSE
        DELETE FROM queen_dead_letter WHERE id = p_id;
        RETURN QUERY SELECT 'moved', v_push.base_offset;
    END IF;
END;
$$;
