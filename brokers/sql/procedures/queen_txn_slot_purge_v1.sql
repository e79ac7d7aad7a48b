-- queen_txn_slot_purge_v1: one bounded step through the slot of the longest class, row by row.
--
-- Called by  queen_txn_slot_clear_v1
-- Reads      queen_txn_9, queen_partition, queen_queue
-- Writes     queen_txn_9; queen_txn_slot (cleared_period of that slot, which has no periods: how
--            far the step got, in microseconds since 1970)
-- Locks      rows that nobody else writes, and the slot's row
-- Cost       p_rows_max rows are looked at, in the order of their age, however many may go: most
--            are still needed, and whoever began with the oldest each time would look at all
--            of them each time.
--
-- Behind the last row that is old enough it begins anew. Rows of one instant are looked at together.

CREATE OR REPLACE FUNCTION queen_txn_slot_purge_v1(
    p_floor_s bigint, p_held_s double precision, p_rows_max integer
)
RETURNS void
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
    v_now     timestamptz := clock_timestamp();
    v_from    timestamptz;
    v_looked  bigint;
    v_reached timestamptz;
    v_places  tid[];
BEGIN
    SELECT timestamptz 'epoch' + cleared_period * interval '1 microsecond' INTO v_from
      FROM queen_txn_slot
     WHERE slot = 9;
    WITH looked AS MATERIALIZED (
        SELECT old.ctid AS place, old.partition_id, old.created_at
          FROM queen_txn_9 old
         WHERE old.created_at > v_from
           AND old.created_at < v_now - make_interval(secs => p_held_s + p_floor_s)
         ORDER BY old.created_at
         FETCH FIRST p_rows_max ROWS WITH TIES
    )
    SELECT count(*), max(looked.created_at),
           array_agg(looked.place) FILTER (
               WHERE queue.id IS NULL
                  OR looked.created_at < v_now - make_interval(
                         secs => p_held_s + greatest(queue.dedup_window_seconds,
                                                     queue.completed_retention_seconds)))
      INTO v_looked, v_reached, v_places
      FROM looked
      LEFT JOIN queen_partition lane ON lane.id = looked.partition_id
      LEFT JOIN queen_queue queue ON queue.id = lane.queue_id;

    DELETE FROM queen_txn_9 WHERE ctid = ANY (v_places);
    IF v_looked < p_rows_max THEN
        v_reached := NULL;
    END IF;
    UPDATE queen_txn_slot
       SET cleared_period = coalesce((extract(epoch FROM v_reached) * 1000000)::bigint, 0)
     WHERE slot = 9
       AND cleared_period IS DISTINCT FROM
           coalesce((extract(epoch FROM v_reached) * 1000000)::bigint, 0);
END;
$$;
