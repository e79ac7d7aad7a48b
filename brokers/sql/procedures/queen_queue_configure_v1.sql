-- queen_queue_configure_v1: create a queue if it is missing, and set some of its options.
--
-- Called by  brokers/store/management_calls.py, queue_configure()
-- Reads      queen_queue, queen_system (by queen_txn_floor_v1)
-- Writes     queen_queue, queen_txn_slot (by queen_txn_carry_v1)
-- Locks      the floor's advisory lock, shared; then the queue row (no key update): concurrent
--            edits are one after the other, pushes and pops go on, a delete waits.
-- Cost       two index probes, and a row when something changes.
-- Answers    the queue as it is now.
-- Raises     QN033 when it is missing and the tenant may have no more queues
--
-- p_patch holds columns with the values they shall have; a default that is to be restored
-- comes as its value. config_version moves only when something changed, since every push
-- that believes the old one has to reload.
--
-- Transaction rows lie in time slots of a class that follows from the longest window of the
-- queue, or from the floor where that is longer. When the class changes, older rows
-- stay where they are: txn_class_mixed sends the look-ups through all classes from then on, and
-- a slot of shorter span is carried over before it is emptied. A queue that is born here has no such rows.

CREATE OR REPLACE FUNCTION queen_queue_configure_v1(
    p_tenant_id uuid,
    p_name      text,
    p_patch     jsonb
)
RETURNS SETOF queen_queue
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    v_old    queen_queue;
    v_new    queen_queue;
    v_floor  bigint  := queen_txn_floor_v1();
    v_born   boolean := false;
BEGIN
    -- A delete may come between the insert that found the name taken and the lock.
    LOOP
        SELECT * INTO v_old
          FROM queen_queue
         WHERE tenant_id = p_tenant_id AND name = p_name
           FOR NO KEY UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO queen_queue (tenant_id, name, namespace, task)
        VALUES (p_tenant_id, p_name,
                CASE WHEN strpos(p_name, '.') > 0 THEN split_part(p_name, '.', 1) ELSE '' END,
                CASE WHEN strpos(p_name, '.') > 0 THEN split_part(p_name, '.', 2) ELSE '' END)
        ON CONFLICT (tenant_id, name) DO NOTHING;
        v_born := v_born OR FOUND;
    END LOOP;
    IF v_born THEN
        PERFORM queen_quota_admit_v1(p_tenant_id, false);
    END IF;

    v_new := jsonb_populate_record(
        v_old,
        p_patch - ARRAY['id', 'uid', 'tenant_id', 'name', 'created_at', 'config_version',
                        'txn_class', 'txn_class_mixed']);
    v_new.txn_class := queen_txn_class_v1(
        greatest(v_new.dedup_window_seconds, v_new.completed_retention_seconds, v_floor));
    IF v_new.txn_class <> v_old.txn_class AND NOT v_born THEN
        v_new.txn_class_mixed := true;
        PERFORM queen_txn_carry_v1(v_new.txn_class);
    END IF;

    IF v_new IS DISTINCT FROM v_old THEN
        UPDATE queen_queue
           SET namespace = v_new.namespace,
               task = v_new.task,
               lease_time = v_new.lease_time,
               retry_limit = v_new.retry_limit,
               dead_letter_queue = v_new.dead_letter_queue,
               dlq_after_max_retries = v_new.dlq_after_max_retries,
               max_deliveries = v_new.max_deliveries,
               delayed_processing = v_new.delayed_processing,
               window_buffer = v_new.window_buffer,
               min_pop_wait_time = v_new.min_pop_wait_time,
               retention_enabled = v_new.retention_enabled,
               retention_seconds = v_new.retention_seconds,
               completed_retention_seconds = v_new.completed_retention_seconds,
               max_wait_time_seconds = v_new.max_wait_time_seconds,
               encryption_enabled = v_new.encryption_enabled,
               dedup_window_seconds = v_new.dedup_window_seconds,
               retention_sink_hold = v_new.retention_sink_hold,
               retention_sink_hold_max_seconds = v_new.retention_sink_hold_max_seconds,
               priority = v_new.priority,
               ttl = v_new.ttl,
               max_size = v_new.max_size,
               retry_delay = v_new.retry_delay,
               txn_class = v_new.txn_class,
               txn_class_mixed = v_new.txn_class_mixed,
               config_version = config_version + 1
         WHERE id = v_old.id;
    END IF;

    RETURN QUERY SELECT * FROM queen_queue WHERE id = v_old.id;
END;
$$;
