-- queen_cursor_complete_v1: complete whole batches, each by one positional cursor move.
--
-- Called by  brokers/store/calls.py, cursor_complete(), for acks that complete exactly what a
--            lease handed out
-- Reads      queen_partition
-- Writes     queen_cursor
-- Locks      cursor rows in ascending (partition, group), waiting for each.
-- Cost       two statements whatever the number of batches.
-- Answers    the numbers (from 1) of the batches that were completed. Of the others nothing
--            happened: their lease is not live, or covers something else; the full
--            procedure tells why.
--
-- The caller's memory of what it handed out grants nothing: lease, end and liveness are
-- checked here, after the locks.

CREATE OR REPLACE FUNCTION queen_cursor_complete_v1(
    p_partition_ids bigint[],
    p_groups        text[],
    p_lease_ids     uuid[],
    p_batch_ends    bigint[]
)
RETURNS TABLE (batch_no integer)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
BEGIN
    PERFORM 1
       FROM unnest(p_partition_ids, p_groups) AS asked(partition_id, consumer_group)
       JOIN queen_cursor place
         ON place.partition_id = asked.partition_id
        AND place.consumer_group = asked.consumer_group
      ORDER BY place.partition_id, place.consumer_group
        FOR UPDATE OF place;
    v_now := clock_timestamp();
    RETURN QUERY
    UPDATE queen_cursor place
       SET committed = asked.batch_end,
           total_consumed = place.total_consumed + greatest(
               asked.batch_end - greatest(place.committed, lane.log_start - 1), 0),
           lease_id = NULL, lease_expires_at = NULL, batch_start = NULL, batch_end = NULL,
           last_lease_id = place.lease_id,
           retry_offset = NULL, retry_count = 0,
           attempt_offset = NULL, attempt_count = 0, expiry_count = 0,
           solo_until = CASE WHEN place.solo_until > asked.batch_end THEN place.solo_until END
      FROM unnest(p_partition_ids, p_groups, p_lease_ids, p_batch_ends)
           WITH ORDINALITY AS asked(partition_id, consumer_group, lease_id, batch_end, no)
      JOIN queen_partition lane ON lane.id = asked.partition_id
     WHERE place.partition_id = asked.partition_id
       AND place.consumer_group = asked.consumer_group
       AND place.lease_id = asked.lease_id
       AND place.batch_end = asked.batch_end
       AND place.lease_expires_at > v_now
       -- An ack of a part came before, perhaps without a lease or elsewhere: then some of
       -- the batch is done already, and the full procedure tells which.
       AND place.committed < place.batch_start
    RETURNING asked.no::integer;
END;
$$;
