-- queen_group_count_v1: keep the figures of a queue's groups as they are now.
--
-- Called by  queen_statistics_step_v1
-- Reads      what queen_group_figures_v1 reads
-- Writes     queen_group_statistics
-- Locks      the rows of the queue's groups there; who counts is alone.
-- Cost       that of queen_group_figures_v1
-- Answers    nothing

CREATE OR REPLACE FUNCTION queen_group_count_v1(p_queue_id bigint, p_at timestamptz)
RETURNS void
LANGUAGE sql
SET enable_seqscan = off
AS $$
    INSERT INTO queen_group_statistics AS known (
           queue_id, consumer_group, computed_at, cursors, partitions_lagging, lag, consumed,
           oldest_at, oldest)
    SELECT p_queue_id, fresh.consumer_group, p_at, fresh.cursors, fresh.lagging, fresh.lag,
           fresh.consumed, fresh.oldest_at, fresh.oldest
      FROM queen_group_figures_v1(p_queue_id, NULL) AS fresh
    ON CONFLICT (queue_id, consumer_group) DO UPDATE
       SET computed_at = excluded.computed_at, cursors = excluded.cursors,
           partitions_lagging = excluded.partitions_lagging, lag = excluded.lag,
           consumed = excluded.consumed, oldest_at = excluded.oldest_at,
           oldest = excluded.oldest;
    DELETE FROM queen_group_statistics known
     WHERE known.queue_id = p_queue_id AND known.computed_at <> p_at
$$;
