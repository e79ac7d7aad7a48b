-- queen_lease_extend_v1: push back the end of every live lease held under one id.
--
-- Called by  brokers/store/lease_calls.py, lease_extend()
-- Reads      queen_partition, queen_queue
-- Writes     queen_cursor.lease_expires_at
-- Locks      cursor rows in ascending (partition, group).
-- Cost       one probe a partition when the caller knows where the lease lies; else one
--            walk over the cursors (an index on lease_id would end HOT updates of the
--            hottest table for the sake of a rare call).
-- Answers    one row: how many were renewed, and the earliest end among them.
--
-- Never shortens, never revives: the clock is read after the locks, and a lease that ran
-- out while we waited stays dead.

CREATE OR REPLACE FUNCTION queen_lease_extend_v1(
    p_tenant_id     uuid,
    p_lease_id      uuid,
    p_seconds       bigint,
    p_partition_ids bigint[]
)
RETURNS TABLE (renewed integer, expires_at timestamptz)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
BEGIN
    IF p_partition_ids IS NULL THEN
        p_partition_ids := ARRAY(
            SELECT place.partition_id FROM queen_cursor place WHERE place.lease_id = p_lease_id);
    END IF;
    PERFORM 1
       FROM queen_cursor place
      WHERE place.partition_id = ANY (p_partition_ids) AND place.lease_id = p_lease_id
      ORDER BY place.partition_id, place.consumer_group
        FOR UPDATE;
    v_now := clock_timestamp();
    RETURN QUERY
    WITH extended AS (
        UPDATE queen_cursor place
           SET lease_expires_at = greatest(place.lease_expires_at,
                                           v_now + make_interval(secs => p_seconds))
          FROM queen_partition lane
          JOIN queen_queue queue ON queue.id = lane.queue_id
         WHERE place.partition_id = ANY (p_partition_ids)
           AND place.lease_id = p_lease_id
           AND place.lease_expires_at > v_now
           AND lane.id = place.partition_id
           AND (p_tenant_id IS NULL OR queue.tenant_id = p_tenant_id)
        RETURNING place.lease_expires_at
    )
    SELECT count(*)::integer, min(extended.lease_expires_at) FROM extended;
END;
$$;
