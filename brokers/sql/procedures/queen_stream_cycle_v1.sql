-- queen_stream_cycle_v1: one cycle of a stream: state, sink messages and source ack, or nothing.
--
-- Called by  brokers/store/stream_calls.py, stream_cycle()
-- Reads      queen_queue, queen_partition, queen_stream_query, and what queen_message_push_v1
--            and queen_stream_ack_v1 read
-- Writes     queen_stream_state, queen_wake, and what they write
-- Locks      the query's advisory lock, shared; then sinks' partition rows in ascending id;
--            then the group's cursor on the source; then the advisory lock of this query's state
--            in this partition, and its rows; its queen_wake row last. Each is waited for at
--            most p_wait_ms.
-- Cost       one call of each, and three statements for the state.
-- Answers    push rows (kind 'push', no = group) as queen_message_push_v1; then one row of kind
--            'cycle' with the source (its queue's name in `queue_name`), how many messages were
--            completed and whether the lease ended.
-- Raises     QN001 stale: a sink's ids or version are out of date, reload and repeat
--            QN030 nothing was done, the message says why: partition, query, full (a sink
--            that enforces its maxSize), lease, already, beyond. DETAIL is the name of the source's queue.
--            55P03 when a lock is not had in time
--
-- Every raise undoes all of it: the function is the transaction. The lease is checked after
-- the cursor's row is locked, so of two workers that commit the same batch one wins.
-- p_keys are distinct: the caller keeps the last operation of each. A null value deletes.
-- A sink message whose transactionId was seen before is left out, and no failure: a batch that
-- is delivered again would fail for ever.
--
-- The cursor's row is locked also without an ack, where there is one: a partition is cleaned up
-- or reclaimed only by who has all its cursors, and then sees the state that is written here.

CREATE OR REPLACE FUNCTION queen_stream_cycle_v1(
    p_tenant_id     uuid,
    p_query_id      uuid,
    p_partition_uid uuid,
    p_group         text,
    p_keys          text[],
    p_values        bytea[],
    p_window_ends   double precision[],
    p_partition_ids bigint[],
    p_queue_ids     bigint[],
    p_versions      bigint[],
    p_frames        bytea[],
    p_ends          bytea[],
    p_transactions  text[],
    p_flags         bytea[],
    p_first_ids     uuid[],
    p_last_ids      uuid[],
    p_wait_ms       integer,
    p_action        integer,
    p_lease_id      uuid,
    p_transaction   text,
    p_count         bigint
)
RETURNS TABLE (
    kind text, no integer, base_offset bigint, duplicate_positions integer[],
    queue_name text, queue_id bigint, partition_id bigint,
    completed bigint, lease_released boolean
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_source bigint;
    v_queue  bigint;
    v_name   text;
    v_state  bigint;
    v_now    timestamptz;
    v_push   record;
    v_ack    record;
BEGIN
    PERFORM set_config('lock_timeout', p_wait_ms::text, true);
    SELECT lane.id, queue.id, queue.name INTO v_source, v_queue, v_name
      FROM queen_partition lane
      JOIN queen_queue queue ON queue.id = lane.queue_id
     WHERE lane.uid = p_partition_uid
       AND (p_tenant_id IS NULL OR queue.tenant_id = p_tenant_id);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'partition' USING ERRCODE = 'QN030';
    END IF;
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('queen_stream ' || p_query_id, 0));
    SELECT query.state INTO v_state
      FROM queen_stream_query query
     WHERE query.id = p_query_id AND (p_tenant_id IS NULL OR query.tenant_id = p_tenant_id);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'query' USING ERRCODE = 'QN030', DETAIL = v_name;
    END IF;

    IF cardinality(p_partition_ids) > 0 THEN
        kind := 'push';
        FOR v_push IN
            SELECT * FROM queen_message_push_v1(
                p_partition_ids, p_queue_ids, p_versions, p_frames, p_ends, p_transactions,
                p_flags, p_first_ids, p_last_ids, p_wait_ms, true, NULL)
        LOOP
            IF v_push.verdict = 'full' THEN
                RAISE EXCEPTION 'full' USING ERRCODE = 'QN030', DETAIL = v_name;
            ELSIF v_push.verdict <> 'stored' THEN
                RAISE EXCEPTION 'the queue or partition was changed or deleted meanwhile'
                    USING ERRCODE = 'QN001';
            END IF;
            no := v_push.group_no;
            base_offset := v_push.base_offset;
            duplicate_positions := v_push.duplicate_positions;
            RETURN NEXT;
        END LOOP;
    END IF;

    no := NULL;
    base_offset := NULL;
    duplicate_positions := NULL;
    kind := 'cycle';
    queue_name := v_name;
    queue_id := v_queue;
    partition_id := v_source;
    completed := 0;
    lease_released := false;
    PERFORM 1 FROM queen_cursor place
      WHERE place.partition_id = v_source AND place.consumer_group = p_group
        FOR UPDATE;
    IF p_action > 0 THEN
        SELECT * INTO v_ack
          FROM queen_stream_ack_v1(
               v_source, p_group, p_lease_id, p_transaction, p_action, p_count);
        IF v_ack.outcome <> 'done' THEN
            RAISE EXCEPTION '%', v_ack.outcome USING ERRCODE = 'QN030', DETAIL = v_name;
        END IF;
        completed := v_ack.completed;
        lease_released := v_ack.released;
    END IF;

    IF cardinality(p_keys) > 0 THEN
        -- Cycles without a lease may meet here; one after the other, none in another's way.
        PERFORM pg_advisory_xact_lock(
            hashtextextended('queen_stream_state ' || v_state || ' ' || v_source, 0));
        v_now := clock_timestamp();
        DELETE FROM queen_stream_state entry
         WHERE entry.state = v_state AND entry.partition_id = v_source
           AND entry.key = ANY (ARRAY(
               SELECT asked.key FROM unnest(p_keys, p_values) AS asked(key, value)
                WHERE asked.value IS NULL));
        INSERT INTO queen_stream_state AS entry (state, partition_id, key, value, window_end,
                                                 updated_at)
        SELECT v_state, v_source, asked.key, asked.value, asked.window_end, v_now
          FROM unnest(p_keys, p_values, p_window_ends) AS asked(key, value, window_end)
         WHERE asked.value IS NOT NULL
        ON CONFLICT (state, partition_id, key) DO UPDATE
           SET value = excluded.value, window_end = excluded.window_end,
               updated_at = excluded.updated_at;
    END IF;

    -- Deleted while we waited for its cursor: nobody would ever read what was written.
    IF NOT EXISTS (SELECT FROM queen_partition lane WHERE lane.id = v_source) THEN
        RAISE EXCEPTION 'partition' USING ERRCODE = 'QN030';
    END IF;
    IF p_action = 3 THEN
        INSERT INTO queen_wake (queue_id, consumer_group, version)
        VALUES (v_queue, p_group, 1)
        ON CONFLICT (queue_id, consumer_group) DO UPDATE SET version = queen_wake.version + 1;
    END IF;
    RETURN NEXT;
END;
$$;
