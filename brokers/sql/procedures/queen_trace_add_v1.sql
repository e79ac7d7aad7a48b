-- queen_trace_add_v1: note an event of a message.
--
-- Called by  brokers/store/trace_calls.py, trace_add()
-- Reads      queen_partition, queen_queue
-- Writes     queen_trace, queen_trace_name
-- Locks      nothing.
-- Cost       one probe, and a row for the trace and for each of its names.
-- Answers    false when the partition is not the caller's (tenancy on); nothing is written then.
--
-- Whether the message exists is not asked. A trace belongs to the tenant of its partition; one
-- that names no partition (tenancy off) to whoever wrote it. p_names are distinct, and p_listed
-- is the same as a JSON array.

CREATE OR REPLACE FUNCTION queen_trace_add_v1(
    p_id             uuid,
    p_tenant_id      uuid,
    p_checked        boolean,
    p_partition_uid  uuid,
    p_transaction_id text,
    p_group          text,
    p_event_type     text,
    p_names          text[],
    p_listed         text,
    p_data           bytea
)
RETURNS boolean
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
    v_owner uuid;
    v_now   timestamptz := clock_timestamp();
    v_hash  bigint := hashtextextended(p_transaction_id, 0);
BEGIN
    SELECT queue.tenant_id INTO v_owner
      FROM queen_partition lane
      JOIN queen_queue queue ON queue.id = lane.queue_id
     WHERE lane.uid = p_partition_uid;
    IF p_checked AND v_owner IS DISTINCT FROM p_tenant_id THEN
        RETURN false;
    END IF;
    v_owner := coalesce(v_owner, p_tenant_id);
    INSERT INTO queen_trace (id, tenant_id, partition_uid, transaction_id, transaction_hash,
                             consumer_group, event_type, names, data, created_at)
    VALUES (p_id, v_owner, p_partition_uid, p_transaction_id, v_hash, p_group, p_event_type,
            p_listed, p_data, v_now);
    INSERT INTO queen_trace_name (tenant_id, name, created_at, trace_id, partition_uid,
                                  transaction_hash)
    SELECT v_owner, given.name, v_now, p_id, p_partition_uid, v_hash
      FROM unnest(p_names) AS given(name);
    RETURN true;
END;
$$;
