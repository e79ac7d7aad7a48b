-- queen_delivery_limit_v1: what maxDeliveries asks for, before these partitions are claimed.
--
-- Called by  queen_message_claim_v1, when a candidate's queue has the option set
-- Reads      queen_partition, queen_queue, queen_segment
-- Writes     queen_cursor, queen_dead_letter
-- Locks      cursor rows in ascending partition, skipping those held by others.
-- Cost       one locked row per candidate whose lease ran out unacked.
-- Answers    how many messages it dead-lettered.
--
-- A message that keeps killing its consumer must not punish its neighbours: after
-- maxDeliveries - 1 deliveries of a batch start ran out, the span is handed out one at a
-- time up to its old end, and only a message that was delivered alone, and has now run out
-- as often as allowed, is set aside. The count starts anew at the next offset.

CREATE OR REPLACE FUNCTION queen_delivery_limit_v1(
    p_partition_ids bigint[],
    p_groups        text[]
)
RETURNS integer
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
    v_set_aside integer := 0;
    v_row       record;
BEGIN
    FOR v_row IN
        SELECT place.partition_id, place.consumer_group, place.batch_start, place.batch_end,
               place.solo_until, place.committed, lane.log_start, queue.max_deliveries,
               -- The delivery that has just run out is counted with those before it.
               1 + CASE WHEN place.attempt_offset = greatest(place.committed + 1, place.batch_start)
                        THEN place.expiry_count ELSE 0 END AS expired
          FROM unnest(p_partition_ids, p_groups) AS asked(partition_id, consumer_group)
          JOIN queen_partition lane ON lane.id = asked.partition_id
          JOIN queen_queue queue
            ON queue.id = lane.queue_id AND queue.max_deliveries > 0 AND NOT queue.paused
          JOIN queen_cursor place
            ON place.partition_id = asked.partition_id
           AND place.consumer_group = asked.consumer_group
         WHERE place.lease_id IS NOT NULL
           AND place.lease_expires_at <= clock_timestamp()
           AND place.batch_end > place.committed
         ORDER BY place.partition_id, place.consumer_group
           FOR UPDATE OF place SKIP LOCKED
    LOOP
        IF v_row.expired >= v_row.max_deliveries AND v_row.batch_start = v_row.batch_end THEN
            PERFORM queen_dead_letter_add_v1(
                v_row.partition_id, v_row.consumer_group, v_row.batch_start,
                format('not acknowledged in %s deliveries', v_row.expired), v_row.expired);
            UPDATE queen_cursor
               SET committed = greatest(committed, v_row.batch_end),
                   total_consumed = total_consumed + greatest(
                       v_row.batch_end - greatest(committed, v_row.log_start - 1), 0),
                   lease_id = NULL, lease_expires_at = NULL,
                   batch_start = NULL, batch_end = NULL,
                   retry_offset = NULL, retry_count = 0,
                   attempt_offset = NULL, attempt_count = 0, expiry_count = 0
             WHERE partition_id = v_row.partition_id AND consumer_group = v_row.consumer_group;
            v_set_aside := v_set_aside + 1;
        ELSIF v_row.expired >= v_row.max_deliveries - 1 THEN
            UPDATE queen_cursor
               SET solo_until = greatest(solo_until, v_row.batch_end)
             WHERE partition_id = v_row.partition_id AND consumer_group = v_row.consumer_group;
        END IF;
    END LOOP;
    RETURN v_set_aside;
END;
$$;
