-- queen_txn_carry_v1: a queue moves up to this class, and leaves rows in shorter slots behind.
--
-- Called by  queen_queue_configure_v1, queen_txn_floor_set_v1
-- Writes     queen_txn_slot
-- Locks      slot rows in their order, behind queue rows
-- Cost       a dozen rows
--
-- Its ids of that time shall be known for the longer window, so queen_txn_slot_clear_v1 has to
-- move them before it truncates a slot that is marked here.

CREATE OR REPLACE FUNCTION queen_txn_carry_v1(p_class smallint)
RETURNS void
LANGUAGE sql
AS $$
    UPDATE queen_txn_slot slot
       SET carry = true
      FROM (
        SELECT slot
          FROM queen_txn_slot
         WHERE (txn_class + 1) % 5 < (p_class + 1) % 5
         ORDER BY slot
           FOR UPDATE
      ) AS shorter
     WHERE slot.slot = shorter.slot
$$;
