-- queen_txn_slot_carry_v1: move rows of one slot to the slots that their queues fill now.
--
-- Called by  queen_txn_slot_clear_v1, for a slot that queen_txn_carry_v1 marked
-- Reads      queen_queue, queen_partition, queen_txn_slot
-- Writes     the slot, queen_txn
-- Locks      rows that nobody else writes
-- Cost       a probe for each partition of a queue that has ever changed its class, and its rows in the
--            slot: never the rows of others, which may be a hundred million.
-- Answers    how many were moved, at most twenty times p_rows_max: they have to be gone within a
--            period, or the slot is passed over for two more.
--
-- Moved are the rows of queues whose class has a longer span than the slot, and whose window,
-- or the floor, or the hold of a spool, still needs them.

CREATE OR REPLACE FUNCTION queen_txn_slot_carry_v1(
    p_slot smallint, p_floor_s bigint, p_held_s double precision, p_rows_max integer
)
RETURNS integer
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
    v_class smallint := (SELECT txn_class FROM queen_txn_slot WHERE slot = p_slot);
    v_moved integer;
BEGIN
    EXECUTE format('
        WITH needed AS MATERIALIZED (
            SELECT known.place, queue.txn_class
              FROM queen_queue queue
              JOIN queen_partition lane ON lane.queue_id = queue.id
             CROSS JOIN LATERAL (
                SELECT known.ctid AS place, known.created_at
                  FROM queen_txn_%1$s known
                 WHERE known.partition_id = lane.id
                OFFSET 0) AS known
             WHERE queue.txn_class_mixed
               AND (queue.txn_class + 1) %% 5 > ($6 + 1) %% 5
               AND known.created_at > $1 - make_interval(
                       secs => $2 + greatest(queue.dedup_window_seconds,
                                             queue.completed_retention_seconds, $3))
             LIMIT $4
        ), moved AS (
            DELETE FROM queen_txn_%1$s known
             USING needed
             WHERE known.ctid = needed.place
            RETURNING known.partition_id, known.hash, known.message_offset, known.created_at,
                      needed.txn_class
        )
        INSERT INTO queen_txn (partition_id, hash, message_offset, created_at, slot)
        SELECT partition_id, hash, message_offset, created_at, $5[txn_class + 1]
          FROM moved', p_slot)
      USING clock_timestamp(), p_held_s, p_floor_s, p_rows_max * 20,
            queen_txn_slots_v1(clock_timestamp()), v_class;
    GET DIAGNOSTICS v_moved = ROW_COUNT;
    RETURN v_moved;
END;
$$;
