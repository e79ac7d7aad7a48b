-- queen_group_delete_v1: let a queue forget a group: its cursors, and its subscription if asked.
--
-- Called by  brokers/store/group_calls.py, group_delete()
-- Reads      queen_group, queen_partition
-- Writes     queen_group, queen_cursor, queen_wake
-- Locks      the group row, its cursor rows in ascending partition, the queen_wake row last. No
--            partition: pushes go on. Claims pass over cursors that we have.
-- Cost       one cursor a partition, all at once: in steps, consumers that are still there would
--            be seeded again in between.
-- Answers    one row: how many cursors went, and whether a subscription did.
--
-- The group row is held first, so that a claim that wants to create a cursor waits, and then
-- finds no subscription; see queen_message_claim_v1. Where the subscription stays, a cursor that
-- is born later begins where the subscription did: at its instant, or at the oldest.

CREATE OR REPLACE FUNCTION queen_group_delete_v1(
    p_queue_id bigint,
    p_group    text,
    p_forget   boolean
)
RETURNS TABLE (cursors bigint, forgotten boolean)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
#variable_conflict use_column
BEGIN
    cursors := 0;
    forgotten := false;
    PERFORM 1 FROM queen_group
      WHERE queue_id = p_queue_id AND consumer_group = p_group
        FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NEXT;
        RETURN;
    END IF;
    PERFORM 1
       FROM queen_cursor place
       JOIN queen_partition lane ON lane.id = place.partition_id
      WHERE lane.queue_id = p_queue_id AND place.consumer_group = p_group
      ORDER BY place.partition_id
        FOR UPDATE OF place;
    DELETE FROM queen_cursor place
     USING queen_partition lane
     WHERE lane.queue_id = p_queue_id AND place.partition_id = lane.id
       AND place.consumer_group = p_group;
    GET DIAGNOSTICS cursors = ROW_COUNT;
    IF p_forget THEN
        DELETE FROM queen_group WHERE queue_id = p_queue_id AND consumer_group = p_group;
        forgotten := true;
    ELSE
        UPDATE queen_group
           SET start_at = subscription_timestamp
         WHERE queue_id = p_queue_id AND consumer_group = p_group;
    END IF;
    INSERT INTO queen_wake AS wake (queue_id, consumer_group)
    VALUES (p_queue_id, p_group)
    ON CONFLICT (queue_id, consumer_group) DO UPDATE SET version = wake.version + 1;
    RETURN NEXT;
END;
$$;
