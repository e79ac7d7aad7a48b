-- queen_group_place_v1: how far a group has come in each partition of a queue.
--
-- Called by  queen_group_figures_v1, queen_group_describe_v1, queen_group_lagging_v1
-- Reads      queen_partition, queen_cursor
-- Locks      nothing
-- Cost       one cursor probe.
-- Answers    one row for a partition: the last offset that is done, at least that before the
--            oldest retained, and how many messages lie beyond it.
--
-- A cursor that is not there yet has consumed nothing; but what was stored before its
-- subscription starts will never be delivered (see queen_message_claim_v1). The body has no SET
-- clauses so that it becomes a part of its caller's statement.

CREATE OR REPLACE FUNCTION queen_group_place_v1(
    p_last_offset     bigint,
    p_log_start       bigint,
    p_last_created_at timestamptz,
    p_committed       bigint,
    p_start_at        timestamptz
)
RETURNS TABLE (done bigint, lag bigint)
LANGUAGE sql
IMMUTABLE
AS $$
    SELECT place.done, greatest(p_last_offset - place.done, 0)
      FROM (
        SELECT greatest(
                   coalesce(p_committed,
                            CASE WHEN p_start_at > p_last_created_at THEN p_last_offset
                                 ELSE -1 END),
                   p_log_start - 1) AS done
      ) AS place
$$;
