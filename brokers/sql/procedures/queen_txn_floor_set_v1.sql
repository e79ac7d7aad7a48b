-- queen_txn_floor_set_v1: a broker tells for how long it wants ids remembered at least.
--
-- Called by  brokers/store/chore_calls.py, txn_floor_set(): before a broker is ready, and every
--            few seconds while it runs
-- Reads      queen_system (key `txn_floors`), queen_queue
-- Writes     queen_system; queen_queue and queen_txn_slot (by queen_txn_carry_v1) when the floor is news
-- Locks      when the floor is news: the advisory lock of queen_txn_floor_v1 exclusively, then
--            queue rows by name (no key update). Else one row of queen_system, every five minutes.
-- Cost       one row, nearly always; a scan of the queues when the floor is news.
-- Answers    how many queues were moved to slots of a longer span.
--
-- Brokers may have different floors, and start in any order: the longest one holds, for as long
-- as somebody says it and an hour beyond, so a restart does not give it up. Remembered are
-- the floors, each with the time it was last told. A floor that nobody has told for half an hour is
-- news again. Queues are moved up only; a floor that nobody needs any more lets go of a queue when
-- the queue is next configured. What was forgotten before a longer floor came stays so.

CREATE OR REPLACE FUNCTION queen_txn_floor_set_v1(p_floor_s bigint)
RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    v_now_s double precision := extract(epoch FROM clock_timestamp());
    v_age_s double precision;
    v_class smallint := queen_txn_class_v1(p_floor_s);
    v_moved integer;
BEGIN
    SELECT v_now_s - (system.value ->> p_floor_s::text)::double precision INTO v_age_s
      FROM queen_system system
     WHERE system.key = 'txn_floors';
    IF v_age_s < 300 THEN
        RETURN 0;
    END IF;
    IF v_age_s IS NULL OR v_age_s > 1800 THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('queen_txn_floor', 0));
        v_now_s := extract(epoch FROM clock_timestamp());
    END IF;
    INSERT INTO queen_system AS system (key, value)
    VALUES ('txn_floors', jsonb_build_object(p_floor_s::text, v_now_s))
    ON CONFLICT (key) DO UPDATE
       SET value = excluded.value || coalesce((
               SELECT jsonb_object_agg(told.key, told.value)
                 FROM jsonb_each(system.value) AS told
                WHERE told.key <> p_floor_s::text
                  AND told.value::double precision > v_now_s - 3600), '{}'),
           updated_at = now();
    IF v_age_s <= 1800 THEN
        RETURN 0;
    END IF;

    UPDATE queen_queue queue
       SET txn_class = v_class, txn_class_mixed = true
      FROM (
        SELECT id
          FROM queen_queue
         WHERE (txn_class + 1) % 5 < (v_class + 1) % 5
         ORDER BY tenant_id, name
           FOR NO KEY UPDATE
      ) AS short
     WHERE queue.id = short.id;
    GET DIAGNOSTICS v_moved = ROW_COUNT;
    IF v_moved > 0 THEN
        PERFORM queen_txn_carry_v1(v_class);
    END IF;
    RETURN v_moved;
END;
$$;
