-- queen_queue_delete_v1: take a queue away with all it holds, at once for every reader.
--
-- Called by  brokers/store/management_calls.py, queue_delete()
-- Reads      queen_queue, queen_group, queen_partition
-- Writes     queen_queue, queen_group, queen_partition, queen_wake, queen_reclaim,
--            queen_timer_reclaim, queen_queue_statistics, queen_group_statistics,
--            queen_letter_statistics
-- Locks      the queue row, its group rows by id, its partition rows in ascending id, its row
--            in queen_timer_reclaim, and its queen_wake rows last. A writer that has a
--            partition is waited for; whoever comes after us finds the partition gone.
-- Cost       grows with partitions and groups, not with messages or pending timers.
-- Answers    the number of partitions that went; null when there is no such queue.
--
-- Every reader comes by the partition row, so segments, cursors, dead letters and the state
-- that streams keep of it are out of reach when this commits; queen_queue_reclaim_v1 removes them behind us in bounded steps.
-- Ids are never used again: an old partitionId cannot move the cursor of a queue that is
-- created anew. An ack that holds its cursor now may still write a dead letter for the dead
-- partition, which is why the reclaim takes the cursors first.
-- Transaction rows leave with their time slots. Counters and what retention deleted are
-- history and stay.
--
-- Timers belong to a queue by its name, so what makes them gone is a generation: those that
-- were scheduled under an older one are dead for every reader when this commits, and one that
-- is scheduled afterwards belongs to the next queue of that name. A schedule that runs
-- meanwhile did or did not see this commit, and is before or after it. A fire that is under
-- way has its partition, or finds it gone; see queen_timer_fire_v1.

CREATE OR REPLACE FUNCTION queen_queue_delete_v1(p_tenant_id uuid, p_name text)
RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    v_queue_id   bigint;
    v_partitions bigint;
BEGIN
    SELECT id INTO v_queue_id
      FROM queen_queue
     WHERE tenant_id = p_tenant_id AND name = p_name
       FOR UPDATE;
    IF NOT FOUND THEN
        -- Timers may wait for a queue that their fire will make: not ours to delete.
        RETURN NULL;
    END IF;
    PERFORM 1 FROM queen_group WHERE queue_id = v_queue_id ORDER BY id FOR UPDATE;
    PERFORM 1 FROM queen_partition WHERE queue_id = v_queue_id ORDER BY id FOR UPDATE;

    INSERT INTO queen_reclaim (partition_id)
    SELECT id FROM queen_partition WHERE queue_id = v_queue_id ORDER BY id;
    GET DIAGNOSTICS v_partitions = ROW_COUNT;

    DELETE FROM queen_partition WHERE queue_id = v_queue_id;
    DELETE FROM queen_group WHERE queue_id = v_queue_id;
    DELETE FROM queen_queue WHERE id = v_queue_id;
    DELETE FROM queen_queue_statistics WHERE queue_id = v_queue_id;
    DELETE FROM queen_group_statistics WHERE queue_id = v_queue_id;
    DELETE FROM queen_letter_statistics WHERE queue_id = v_queue_id;
    INSERT INTO queen_timer_reclaim AS gone (tenant_id, queue, generation)
    VALUES (p_tenant_id, p_name, nextval('queen_timer_generation'))
    ON CONFLICT (tenant_id, queue) DO UPDATE
       SET generation = excluded.generation, swept_to = '', settled = false, skipped = false,
           horizon = NULL;
    PERFORM 1
       FROM queen_wake
      WHERE queue_id = v_queue_id
      ORDER BY consumer_group
        FOR UPDATE;
    DELETE FROM queen_wake WHERE queue_id = v_queue_id;
    RETURN v_partitions;
END;
$$;
