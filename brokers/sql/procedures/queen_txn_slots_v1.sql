-- queen_txn_slots_v1: the slot of queen_txn that each class fills at an instant.
--
-- Called by  queen_message_push_v1, queen_message_push_one_v1, queen_txn_slot_clear_v1
-- Reads      nothing: the slots are fixed (see migration 0002).
-- Answers    five slot numbers; element c+1 is that of class c.
--
-- Not STRICT: of a strict function PostgreSQL cannot put an array into the caller's expression, and
-- calls it instead, which costs more than the sums.
--
-- A class has three slots of one span (3600 s, a day, thirty days; class 4: 300 s): the one being
-- filled, the one before it, and the one that is cleared meanwhile. Class 3 has one slot.

CREATE OR REPLACE FUNCTION queen_txn_slots_v1(p_at timestamptz)
RETURNS smallint[]
LANGUAGE sql
IMMUTABLE PARALLEL SAFE
AS $$
    SELECT ARRAY[
        (floor(extract(epoch FROM p_at) / 3600)::bigint % 3)::smallint,
        (3 + floor(extract(epoch FROM p_at) / 86400)::bigint % 3)::smallint,
        (6 + floor(extract(epoch FROM p_at) / 2592000)::bigint % 3)::smallint,
        9::smallint,
        (10 + floor(extract(epoch FROM p_at) / 300)::bigint % 3)::smallint]
$$;
