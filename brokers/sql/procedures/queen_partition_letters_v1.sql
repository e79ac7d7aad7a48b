-- queen_partition_letters_v1: how many dead letters a partition has.
--
-- Called by  queen_queue_figures_v1, queen_queue_describe_v1, queen_queue_inspect_v1
-- Reads      queen_dead_letter, queen_letter_statistics
-- Locks      nothing
-- Cost       at most 1001 index entries, and a probe where there are so many.
-- Answers    one row: their number up to 1000; beyond that as last counted by the statistics, and
--            1001 until they have counted.
--
-- The body has no SET clauses so that it becomes a part of its caller's statement.

CREATE OR REPLACE FUNCTION queen_partition_letters_v1(p_queue_id bigint, p_partition_id bigint)
RETURNS TABLE (dead bigint)
LANGUAGE sql
STABLE
AS $$
    SELECT CASE WHEN few.letters <= 1000 THEN few.letters
                ELSE greatest(few.letters, (
                    SELECT known.dead_letters
                      FROM queen_letter_statistics known
                     WHERE known.queue_id = p_queue_id AND known.partition_id = p_partition_id))
           END
      FROM (
        SELECT count(*) AS letters
          FROM (
            SELECT
              FROM queen_dead_letter letter
             WHERE letter.partition_id = p_partition_id
             LIMIT 1001
          ) AS looked
      ) AS few
$$;
