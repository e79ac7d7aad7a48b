-- queen_transaction_commit_v1: key/value writes, timers, pushes and acks, all or nothing.
--
-- Called by  brokers/store/calls.py, transaction_commit()
-- Reads      what queen_kv_apply_v1, queen_timer_apply_v1, queen_message_push_v1 and
--            queen_message_ack_v1 read
-- Writes     what they write
-- Locks      the keys that are written in ascending (tenant, ns, key), then timer rows by
--            (queue, key), then partition rows in ascending id (waiting at most p_wait_ms
--            for each), then cursor rows in ascending (partition, group), then queen_wake
--            rows.
-- Cost       one call of each.
-- Answers    key/value rows (kind 'kv') as queen_kv_apply_v1, timer rows (kind 'timer', no =
--            operation, outcome = status), push rows (kind 'push', no = group) as
--            queen_message_push_v1, and ack rows (kind 'ack', no = ack) as
--            queen_message_ack_v1.
--            A lost required key/value operation is answered alone: nothing was done then.
-- Raises     QN001 stale: ids or version are out of date, reload and repeat
--            QN002 a pushed transactionId is already in the window (DETAIL: group position)
--            QN003 an ack cannot be carried out (DETAIL: ack outcome)
--            QN004 a queue that enforces its maxSize has no room for what is pushed to it
--            QN010 a timer's queue encrypts and its payload is plain, or the other way round
--            55P03 when a partition's lock is not had in time
--
-- Every raise undoes all of it: the function is the transaction. A lease is checked after
-- its row is locked, inside this transaction: of a late committer and the successor that
-- popped meanwhile exactly one wins.

CREATE OR REPLACE FUNCTION queen_transaction_commit_v1(
    p_partition_ids  bigint[],
    p_queue_ids      bigint[],
    p_versions       bigint[],
    p_frames         bytea[],
    p_ends           bytea[],
    p_transactions   text[],
    p_flags          bytea[],
    p_first_ids      uuid[],
    p_last_ids       uuid[],
    p_wait_ms        integer,
    p_tenant_id      uuid,
    p_ack_partitions uuid[],
    p_ack_groups     text[],
    p_ack_leases     uuid[],
    p_ack_texts      text[],
    p_ack_actions    smallint[],
    p_ack_errors     text[],
    p_required       uuid[],
    p_mentions_lease boolean,
    p_kv_tenants     uuid[],
    p_kv_ops         smallint[],
    p_kv_namespaces  text[],
    p_kv_keys        text[],
    p_kv_values      bytea[],
    p_kv_expects     bigint[],
    p_kv_ttls        bigint[],
    p_kv_deltas      numeric[],
    p_kv_floors      numeric[],
    p_kv_ceilings    numeric[],
    p_kv_required    boolean[],
    p_kv_bytes_max   bigint,
    p_timer_tenant     uuid,
    p_timer_queues     text[],
    p_timer_keys       text[],
    p_timer_partitions text[],
    p_timer_delays     bigint[],
    p_timer_txns       text[],
    p_timer_payloads   bytea[],
    p_timer_encrypted  boolean[],
    p_timer_marked     boolean[],
    p_timer_producer   text
)
RETURNS TABLE (
    kind text, no integer, outcome text, base_offset bigint,
    duplicate_positions integer[], duplicate_ids uuid[],
    lease_released boolean, dead_lettered boolean, queue_id bigint, partition_id bigint,
    key text, value bytea, version bigint, expires_at timestamptz, updated_at timestamptz,
    timer_message_id uuid, timer_deliver_at timestamptz
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_push  record;
    v_ack   record;
    v_kv    record;
    v_timer record;
BEGIN
    -- First of the one lock order: keys, timers, queues, partitions, cursors.
    IF cardinality(p_kv_ops) > 0 THEN
        kind := 'kv';
        FOR v_kv IN
            SELECT * FROM queen_kv_apply_v1(
                p_kv_tenants, p_kv_ops, p_kv_namespaces, p_kv_keys, p_kv_values, p_kv_expects,
                p_kv_ttls, p_kv_deltas, p_kv_floors, p_kv_ceilings, p_kv_required,
                NULL, NULL, NULL, p_kv_bytes_max, p_wait_ms)
        LOOP
            no := v_kv.no;
            outcome := v_kv.verdict;
            key := v_kv.key;
            value := v_kv.value;
            version := v_kv.version;
            expires_at := v_kv.expires_at;
            updated_at := v_kv.updated_at;
            RETURN NEXT;
        END LOOP;
        IF outcome = 'lost' THEN
            RETURN;
        END IF;
        key := NULL;
        value := NULL;
        version := NULL;
        expires_at := NULL;
        updated_at := NULL;
    END IF;

    IF cardinality(p_timer_keys) > 0 THEN
        kind := 'timer';
        FOR v_timer IN
            SELECT * FROM queen_timer_apply_v1(
                p_timer_tenant, p_timer_queues, p_timer_keys, p_timer_partitions,
                p_timer_delays, p_timer_txns, p_timer_payloads, p_timer_encrypted,
                p_timer_marked, p_timer_producer)
        LOOP
            no := v_timer.operation_no;
            outcome := v_timer.status;
            timer_message_id := v_timer.message_id;
            timer_deliver_at := v_timer.deliver_at;
            RETURN NEXT;
        END LOOP;
        timer_message_id := NULL;
        timer_deliver_at := NULL;
    END IF;

    IF cardinality(p_partition_ids) > 0 THEN
        FOR v_push IN
            SELECT * FROM queen_message_push_v1(
                p_partition_ids, p_queue_ids, p_versions, p_frames, p_ends, p_transactions,
                p_flags, p_first_ids, p_last_ids, p_wait_ms, true, NULL)
        LOOP
            IF v_push.verdict = 'full' THEN
                RAISE EXCEPTION 'the queue is full (maxSize)' USING ERRCODE = 'QN004';
            ELSIF v_push.verdict <> 'stored' THEN
                RAISE EXCEPTION 'the queue or partition was changed or deleted meanwhile'
                    USING ERRCODE = 'QN001';
            END IF;
            IF false = ANY (v_push.duplicate_inside) THEN
                RAISE EXCEPTION 'QDUP transactionId already exists; transaction rolled back'
                    USING ERRCODE = 'QN002',
                          DETAIL = v_push.group_no || ' ' || v_push.duplicate_positions[
                              array_position(v_push.duplicate_inside, false)];
            END IF;
            kind := 'push';
            no := v_push.group_no;
            outcome := v_push.verdict;
            base_offset := v_push.base_offset;
            duplicate_positions := v_push.duplicate_positions;
            duplicate_ids := v_push.duplicate_ids;
            queue_id := p_queue_ids[v_push.group_no];
            partition_id := p_partition_ids[v_push.group_no];
            RETURN NEXT;
        END LOOP;
    END IF;

    base_offset := NULL;
    duplicate_positions := NULL;
    duplicate_ids := NULL;
    IF cardinality(p_ack_partitions) > 0 THEN
        FOR v_ack IN
            SELECT * FROM queen_message_ack_v1(
                p_tenant_id, array_fill(1, ARRAY[cardinality(p_ack_partitions)]),
                p_ack_partitions, p_ack_groups, p_ack_leases, p_ack_texts,
                p_ack_actions, p_ack_errors, p_required, p_mentions_lease)
        LOOP
            IF v_ack.outcome NOT IN ('done', 'noop') THEN
                RAISE EXCEPTION 'ack %: %', v_ack.ack_no, v_ack.outcome
                    USING ERRCODE = 'QN003', DETAIL = v_ack.ack_no || ' ' || v_ack.outcome;
            END IF;
            kind := 'ack';
            no := v_ack.ack_no;
            outcome := v_ack.outcome;
            lease_released := v_ack.lease_released;
            dead_lettered := v_ack.dead_lettered;
            queue_id := v_ack.queue_id;
            partition_id := v_ack.partition_id;
            RETURN NEXT;
        END LOOP;
    END IF;
END;
$$;
