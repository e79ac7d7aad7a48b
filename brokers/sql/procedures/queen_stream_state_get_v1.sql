-- queen_stream_state_get_v1: the state of a query in one source partition.
--
-- Called by  brokers/store/stream_calls.py, stream_state_get()
-- Reads      queen_queue, queen_partition, queen_stream_query, queen_stream_state
-- Cost       one probe a key; without keys the range of the prefix in the partition's state.
-- Answers    entries in key order (C), or none when the query is unknown or a foreign one.
-- Raises     QN030 the partition is unknown, or not the tenant's (tenancy on)
--            QN013 the values have more than p_bytes_max bytes: a part of the state would
--            be taken for all of it, so there is none
--
-- Filters that are null do not filter. p_tenant_id is null while tenancy is off; then an
-- unknown partition has no state and is no error.

CREATE OR REPLACE FUNCTION queen_stream_state_get_v1(
    p_tenant_id     uuid,
    p_query_id      uuid,
    p_partition_uid uuid,
    p_keys          text[],
    p_prefix        text,
    p_ripe_at       double precision,
    p_bytes_max     bigint
)
RETURNS TABLE (key text, value bytea, updated_at timestamptz)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_partition bigint;
    v_state     bigint;
    v_prefix    text := coalesce(p_prefix, '');
    v_bytes     bigint := 0;
    v_entries   refcursor;
BEGIN
    SELECT lane.id INTO v_partition
      FROM queen_partition lane
      JOIN queen_queue queue ON queue.id = lane.queue_id
     WHERE lane.uid = p_partition_uid
       AND (p_tenant_id IS NULL OR queue.tenant_id = p_tenant_id);
    IF NOT FOUND THEN
        IF p_tenant_id IS NULL THEN
            RETURN;
        END IF;
        RAISE EXCEPTION 'partition not found' USING ERRCODE = 'QN030';
    END IF;
    SELECT query.state INTO v_state
      FROM queen_stream_query query
     WHERE query.id = p_query_id AND (p_tenant_id IS NULL OR query.tenant_id = p_tenant_id);
    IF NOT FOUND THEN
        RETURN;
    END IF;

    -- Two statements, because one with both conditions would go through all of the state.
    IF p_keys IS NOT NULL THEN
        OPEN v_entries FOR
            SELECT entry.key, entry.value, entry.updated_at
              FROM queen_stream_state entry
             WHERE entry.state = v_state AND entry.partition_id = v_partition
               AND entry.key = ANY (p_keys) AND starts_with(entry.key, v_prefix)
               AND (p_ripe_at IS NULL OR entry.window_end <= p_ripe_at)
             ORDER BY entry.key;
    ELSE
        OPEN v_entries FOR
            SELECT entry.key, entry.value, entry.updated_at
              FROM queen_stream_state entry
             WHERE entry.state = v_state AND entry.partition_id = v_partition
               AND entry.key >= v_prefix AND entry.key < queen_prefix_end_v1(v_prefix)
               AND (p_ripe_at IS NULL OR entry.window_end <= p_ripe_at)
             ORDER BY entry.key;
    END IF;
    LOOP
        FETCH v_entries INTO key, value, updated_at;
        EXIT WHEN NOT FOUND;
        v_bytes := v_bytes + octet_length(value);
        IF v_bytes > p_bytes_max THEN
            RAISE EXCEPTION 'the state asked for has more than % bytes: ask by keys or a prefix',
                            p_bytes_max
                USING ERRCODE = 'QN013';
        END IF;
        RETURN NEXT;
    END LOOP;
    CLOSE v_entries;
END;
$$;
