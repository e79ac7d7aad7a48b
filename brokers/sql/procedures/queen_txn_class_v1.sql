-- queen_txn_class_v1: the class of transaction slots that remembers an id for so many seconds.
--
-- Called by  queen_queue_configure_v1, queen_queue_create_v1, queen_txn_floor_set_v1
-- Reads      nothing: the slots are fixed (see migration 0002).
-- Answers    the class with the shortest span that is not below p_window_s. From the shortest
--            to the longest they are 4, 0, 1, 2, 3: (class + 1) % 5 rises with the span.

CREATE OR REPLACE FUNCTION queen_txn_class_v1(p_window_s bigint)
RETURNS smallint
LANGUAGE sql
IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT CASE WHEN p_window_s <= 300 THEN 4
                WHEN p_window_s <= 3600 THEN 0
                WHEN p_window_s <= 86400 THEN 1
                WHEN p_window_s <= 2592000 THEN 2
                ELSE 3 END::smallint
$$;
