-- queen_history_span_v1: of which width are the buckets that make up one of so many minutes.
--
-- Called by  whatever reads queen_queue_counter
-- Locks      nothing
-- Cost       nothing
-- Answers    the widest of those that are kept that divides it: fewer rows to add up.

CREATE OR REPLACE FUNCTION queen_history_span_v1(p_minutes integer)
RETURNS smallint
LANGUAGE sql
IMMUTABLE
AS $$
    SELECT (CASE WHEN p_minutes % 360 = 0 THEN 360
                 WHEN p_minutes % 60 = 0 THEN 60
                 WHEN p_minutes % 15 = 0 THEN 15
                 ELSE 1 END)::smallint
$$;
