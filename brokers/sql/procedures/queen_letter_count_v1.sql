-- queen_letter_count_v1: keep how many dead letters the fullest partitions of a queue have.
--
-- Called by  queen_statistics_step_v1
-- Reads      queen_dead_letter, queen_partition
-- Writes     queen_letter_statistics
-- Locks      the rows of the queue's partitions there; who counts is alone.
-- Cost       1001 index entries of a queue without many; else a probe a partition, and all letters
--            of those that have more than 1000.
-- Answers    nothing. Partitions with at most 1000 letters have no row: whoever asks counts those.

CREATE OR REPLACE FUNCTION queen_letter_count_v1(p_queue_id bigint)
RETURNS void
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    v_few   bigint;
    v_lanes bigint[] := '{}';
BEGIN
    SELECT count(*) INTO v_few
      FROM (
        SELECT FROM queen_dead_letter letter WHERE letter.queue_id = p_queue_id LIMIT 1001
      ) AS looked;
    IF v_few > 1000 THEN
        WITH kept AS (
            INSERT INTO queen_letter_statistics AS known (queue_id, partition_id, dead_letters)
            SELECT p_queue_id, lane.id, counted.letters
              FROM queen_partition lane
             CROSS JOIN LATERAL (
                SELECT count(*) AS letters
                  FROM (
                    SELECT
                      FROM queen_dead_letter letter
                     WHERE letter.partition_id = lane.id
                     LIMIT 1001
                  ) AS looked
             ) AS few
             CROSS JOIN LATERAL (
                SELECT count(*) AS letters
                  FROM queen_dead_letter letter
                 WHERE letter.partition_id = lane.id
             ) AS counted
             WHERE lane.queue_id = p_queue_id AND few.letters > 1000
            ON CONFLICT (queue_id, partition_id) DO UPDATE
               SET dead_letters = excluded.dead_letters
            RETURNING partition_id
        )
        SELECT coalesce(array_agg(kept.partition_id), '{}') INTO v_lanes FROM kept;
    END IF;
    DELETE FROM queen_letter_statistics known
     WHERE known.queue_id = p_queue_id AND known.partition_id <> ALL (v_lanes);
END;
$$;
