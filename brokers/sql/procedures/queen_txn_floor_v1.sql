-- queen_txn_floor_v1: for how many seconds any transactionId has to be remembered at least.
--
-- Called by  queen_queue_configure_v1, queen_queue_create_v1, queen_txn_slot_clear_v1
-- Reads      queen_system (key `txn_floors`)
-- Locks      an advisory lock, shared, until the transaction ends: whoever chooses a class by
--            the answer has committed before a longer floor is looked after, or sees it. Taken
--            before any queue row.
-- Cost       one row
-- Answers    the longest of the floors that brokers asked for within the last hour
--            (queen_txn_floor_set_v1); 900 when nobody did.

CREATE OR REPLACE FUNCTION queen_txn_floor_v1()
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
    v_floor_s bigint;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('queen_txn_floor', 0));
    SELECT max(told.key::bigint) INTO v_floor_s
      FROM queen_system system
     CROSS JOIN LATERAL jsonb_each_text(system.value) AS told
     WHERE system.key = 'txn_floors'
       AND told.value::double precision > extract(epoch FROM clock_timestamp()) - 3600;
    RETURN coalesce(v_floor_s, 900);
END;
$$;
