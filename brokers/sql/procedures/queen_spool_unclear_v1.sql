-- queen_spool_unclear_v1: which records of unknown outcome were stored, by the log itself.
--
-- Called by  queen_spool_replay_v1, behind its look at the transaction rows
-- Reads      queen_txn_slot, queen_segment
-- Locks      nothing: the caller holds the partitions' rows.
-- Cost       nothing while the slots of that time and these classes are untouched; else queen_message_find_v1
--            once a partition.
-- Answers    the indexes (from 1) of the unclear records that were found.
--
-- A transaction row that nobody can have removed would have been found, so its absence
-- proves that the push did not commit. In period k a class truncates rows of period k-2 and
-- older, whatever others do; the caller has read the slots before and holds off truncation until it ends. Rows
-- of a queue that changed its class may lie anywhere, and the last slot is purged by row.

CREATE OR REPLACE FUNCTION queen_spool_unclear_v1(
    p_partition_ids bigint[],
    p_ids           uuid[],
    p_accepted      timestamptz[],
    p_unclear       boolean[],
    p_known         integer[],
    p_classes       smallint[],
    p_mixed         boolean
)
RETURNS integer[]
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
    c_around CONSTANT interval := interval '10 minutes';
    v_since  timestamptz;
BEGIN
    SELECT min(asked.accepted_at) - c_around INTO v_since
      FROM unnest(p_accepted, p_unclear)
           WITH ORDINALITY AS asked(accepted_at, unclear, index)
     WHERE asked.unclear AND asked.index <> ALL (p_known);
    IF v_since IS NULL THEN
        RETURN '{}';
    END IF;
    IF NOT p_mixed AND v_since > clock_timestamp() - interval '30 days' AND NOT EXISTS (
        SELECT FROM queen_txn_slot slot
         WHERE slot.span_s > 0 AND slot.txn_class = ANY (p_classes)
           AND slot.cleared_period >= floor(extract(epoch FROM v_since) / slot.span_s) + 2)
    THEN
        RETURN '{}';
    END IF;

    RETURN ARRAY(
        WITH asked AS MATERIALIZED (
            SELECT given.index::integer AS index, given.partition_id, given.id, given.accepted_at
              FROM unnest(p_partition_ids, p_ids, p_accepted, p_unclear)
                   WITH ORDINALITY AS given(partition_id, id, accepted_at, unclear, index)
             WHERE given.unclear AND given.index <> ALL (p_known)
        ), stored AS MATERIALIZED (
            SELECT wanted.partition_id,
                   queen_message_find_v1(wanted.partition_id, wanted.ids,
                                         wanted.first_at - c_around,
                                         wanted.last_at + c_around) AS ids
              FROM (
                SELECT asked.partition_id, array_agg(asked.id) AS ids,
                       min(asked.accepted_at) AS first_at, max(asked.accepted_at) AS last_at
                  FROM asked
                 GROUP BY asked.partition_id
              ) AS wanted
        )
        SELECT asked.index
          FROM asked
          JOIN stored ON stored.partition_id = asked.partition_id
         WHERE asked.id = ANY (stored.ids)
         ORDER BY asked.index);
END;
$$;
