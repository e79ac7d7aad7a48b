-- queen_cell_figures_v1: what all brokers counted since the beginning, and dead letters now.
--
-- Called by  brokers/store/status_calls.py, cell_figures()
-- Reads      queen_cell_counter, queen_queue_statistics
-- Locks      nothing
-- Cost       one row a counter, and one a queue.
-- Answers    one row a counter, and one for the dead letters that were stored when last counted.

CREATE OR REPLACE FUNCTION queen_cell_figures_v1()
RETURNS TABLE (name text, value bigint)
LANGUAGE sql
STABLE
AS $$
    SELECT kept.name, kept.value FROM queen_cell_counter kept
    UNION ALL
    SELECT 'dead_letters_stored', coalesce(sum(known.dead_letters), 0)::bigint
      FROM queen_queue_statistics known
$$;
