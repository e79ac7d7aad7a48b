-- queen_lease_release_v1: hand back a claim whose answer was never begun, without charge.
--
-- Called by  brokers/store/lease_calls.py, lease_release()
-- Writes     queen_cursor
-- Locks      cursor rows in ascending (partition, group).
-- Cost       one probe a partition.
-- Answers    how many were handed back.
--
-- Nobody saw the messages: the delivery is not counted. They waited for no retryDelay when they
-- were claimed (a claim clears retry_at), so they wait for none now.

CREATE OR REPLACE FUNCTION queen_lease_release_v1(
    p_lease_id      uuid,
    p_partition_ids bigint[],
    p_group         text
)
RETURNS integer
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
    v_count integer;
BEGIN
    PERFORM 1
       FROM queen_cursor place
      WHERE place.partition_id = ANY (p_partition_ids) AND place.consumer_group = p_group
        AND place.lease_id = p_lease_id
      ORDER BY place.partition_id, place.consumer_group
        FOR UPDATE;
    UPDATE queen_cursor place
       SET lease_id = NULL, lease_expires_at = NULL, batch_start = NULL, batch_end = NULL,
           attempt_count = greatest(place.attempt_count - 1, 0)
     WHERE place.partition_id = ANY (p_partition_ids) AND place.consumer_group = p_group
       AND place.lease_id = p_lease_id;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END;
$$;
