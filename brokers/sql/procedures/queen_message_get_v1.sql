-- queen_message_get_v1: one message by its address, and what became of it.
--
-- Called by  brokers/store/message_calls.py, message_get()
-- Reads      queen_queue, queen_partition, queen_txn, queen_segment, queen_dead_letter,
--            queen_cursor, queen_group
-- Locks      nothing
-- Cost       index probes while the transactionId is in its time slots or a dead letter knows
--            where it was; else at most p_segments_max segments and p_bytes_max bytes of them.
-- Answers    one row, or none when it is unknown, another tenant's, or not retained. A message
--            of which only a dead letter is left has the letter's snapshot, and its time.
--
-- p_transaction is the canonical literal. Of several messages with it the newest is meant.
-- The frame is whole, its payload as stored. `readers` is a JSON array as text.

CREATE OR REPLACE FUNCTION queen_message_get_v1(
    p_tenant_id     uuid,
    p_partition_uid uuid,
    p_transaction   text,
    p_segments_max  integer,
    p_bytes_max     bigint
)
RETURNS TABLE (
    options jsonb, partition_name text, message_id uuid, message_offset bigint,
    created_at timestamptz, frame bytea, payload bytea, producer_sub text, encrypted boolean,
    queue_status text, lease_expires_at timestamptz, dead boolean, error text,
    retry_count bigint, readers text, queue_mode boolean, bus_groups integer, consumed_by integer
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
SET timezone = 'UTC'
AS $$
#variable_conflict use_column
DECLARE
    v_now    timestamptz := clock_timestamp();
    v_queue  queen_queue;
    v_lane   queen_partition;
    v_letter queen_dead_letter;
    v_cursor queen_cursor;
    v_offset bigint;
    v_frame  text;
BEGIN
    SELECT lane.* INTO v_lane
      FROM queen_partition lane
      JOIN queen_queue queue ON queue.id = lane.queue_id AND queue.tenant_id = p_tenant_id
     WHERE lane.uid = p_partition_uid;
    SELECT * INTO v_queue FROM queen_queue WHERE id = v_lane.queue_id;
    IF v_queue.id IS NULL THEN
        RETURN;
    END IF;

    SELECT max(known.message_offset) INTO v_offset
      FROM queen_txn known
     WHERE known.partition_id = v_lane.id
       AND known.hash = queen_txn_hash_v1(p_transaction)
       AND queen_frame_is_v1(queen_frame_get_v1(v_lane.id, known.message_offset), p_transaction);
    SELECT letter.* INTO v_letter
      FROM queen_dead_letter letter
     WHERE letter.partition_id = v_lane.id
       AND letter.transaction_hash = hashtextextended(p_transaction, 0)
       AND letter.transaction_id = p_transaction
       AND (v_offset IS NULL OR letter.message_offset = v_offset)
     ORDER BY letter.failed_at DESC, letter.id DESC
     LIMIT 1;
    IF v_offset IS NULL AND v_letter.id IS NULL THEN
        v_offset := queen_message_seek_v1(v_lane.id, p_transaction, p_segments_max, p_bytes_max);
    END IF;
    v_offset := coalesce(v_offset, v_letter.message_offset);
    v_frame := queen_frame_get_v1(v_lane.id, v_offset);
    IF v_frame IS NULL AND v_letter.id IS NULL THEN
        RETURN;
    END IF;

    SELECT * INTO v_cursor
      FROM queen_cursor
     WHERE partition_id = v_lane.id AND consumer_group = '__QUEUE_MODE__';
    RETURN QUERY
    SELECT to_jsonb(v_queue), v_lane.name,
           coalesce(v_letter.message_id, substr(v_frame, 8, 36)::uuid), v_offset,
           CASE WHEN v_frame IS NULL THEN v_letter.failed_at
                ELSE queen_created_at_v1(v_lane.id, v_offset) END,
           convert_to(v_frame, 'UTF8'), CASE WHEN v_frame IS NULL THEN v_letter.payload END,
           v_letter.producer_sub,
           CASE WHEN v_frame IS NULL THEN v_letter.encrypted
                ELSE (SELECT coalesce(get_byte(segment.flags,
                                               (v_offset - segment.base_offset)::integer) & 1 = 1,
                                      false)
                        FROM queen_segment segment
                       WHERE segment.partition_id = v_lane.id
                         AND segment.base_offset = queen_segment_base_v1(v_lane.id, v_offset))
           END,
           CASE WHEN v_offset <= v_cursor.committed THEN 'completed'
                WHEN v_cursor.lease_expires_at > v_now AND v_offset <= v_cursor.batch_end
                THEN 'processing'
                ELSE 'pending' END,
           CASE WHEN v_cursor.lease_expires_at > v_now AND v_offset > v_cursor.committed
                     AND v_offset <= v_cursor.batch_end
                THEN v_cursor.lease_expires_at END,
           v_letter.id IS NOT NULL, v_letter.error, coalesce(v_letter.retry_count, 0),
           coalesce(bus.readers, '[]'), v_cursor.partition_id IS NOT NULL, bus.groups,
           bus.consumed_by
      FROM (
        SELECT count(*)::integer AS groups,
               (count(*) FILTER (WHERE coalesce(reader.committed, -1) >= v_offset))::integer
                   AS consumed_by,
               json_agg(json_build_object(
                   'name', known.consumer_group, 'group', known.consumer_group,
                   'consumed', coalesce(reader.committed, -1) >= v_offset,
                   'leaseExpiresAt',
                   CASE WHEN reader.lease_expires_at > v_now
                        THEN to_char(reader.lease_expires_at, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') END
               ) ORDER BY known.consumer_group)::text AS readers
          FROM queen_group known
          LEFT JOIN queen_cursor reader
                 ON reader.partition_id = v_lane.id
                AND reader.consumer_group = known.consumer_group
         WHERE known.queue_id = v_queue.id AND known.consumer_group <> '__QUEUE_MODE__'
      ) AS bus;
END;
$$;
