-- queen_txn_slot_due_v1: the period in which a slot is to be emptied, if that is now.
--
-- Called by  queen_txn_slot_clear_v1, before and behind the lock of a slot
-- Reads      queen_txn_slot, queen_spool (by queen_spool_hold_v1)
-- Locks      nothing
-- Cost       a handful of rows
-- Answers    the number of the present period of the slot's class, when the slot is the one
--            that is filled in the next; null when it is not, or not yet: in the first five seconds
--            of a period, and for as much longer as a spool holds rows.

CREATE OR REPLACE FUNCTION queen_txn_slot_due_v1(p_slot smallint)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
    c_grace_s CONSTANT integer := 5;
    v_slot    queen_txn_slot;
    v_now_s   numeric := extract(epoch FROM clock_timestamp());
    v_period  bigint;
BEGIN
    SELECT * INTO v_slot FROM queen_txn_slot WHERE slot = p_slot;
    v_period := floor(v_now_s / v_slot.span_s)::bigint;
    IF (queen_txn_slots_v1(to_timestamp((v_period + 1) * v_slot.span_s)))[v_slot.txn_class + 1]
       = p_slot
       -- The youngest row that is due is as much older than a span as this period is old.
       AND v_now_s - v_period * v_slot.span_s >= c_grace_s + queen_spool_hold_v1()
    THEN
        RETURN v_period;
    END IF;
    RETURN NULL;
END;
$$;
