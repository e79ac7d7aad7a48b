-- queen_group_register_v1: record a group's subscription to a queue, once, before its first claim.
--
-- Called by  brokers/store/calls.py, group_register()
-- Reads      queen_queue, queen_group, queen_partition, queen_segment
-- Writes     queen_group, queen_cursor
-- Locks      the queue row (key share: a delete waits), the new group row, then new cursor
--            rows in ascending partition.
-- Cost       one probe when registered; else one cursor per partition for `new`.
-- Answers    one row: created, and the stored conflation policy; no row: the queue is gone.
--
-- `new` (no p_from) seeds a cursor at the last offset that is visible now, in every
-- partition there is, in one statement and never by clock: a push that has its offset but
-- not yet its commit is above the seed and will be delivered, and a partition born later
-- has no cursor and counts from its first message. `all` seeds nothing. A time seeds just
-- below the first message stored at or after it, at most at the visible end. Two workers
-- racing here: the second waits for the first's group row and then seeds nothing.
-- A discovery (p_namespace, p_task) may meet a queue that was born after the group's first
-- contact: since this pop began (p_born), or since the group met another queue of the
-- discovery.
-- All that is in it came later, so it delivers from the first message, as `all` does.

CREATE OR REPLACE FUNCTION queen_group_register_v1(
    p_queue_id   bigint,
    p_group      text,
    p_mode       text,
    p_from       timestamptz,
    p_conflation boolean,
    p_namespace  text,
    p_task       text,
    p_born       boolean
)
RETURNS TABLE (created boolean, conflation boolean)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_created boolean;
    v_born    boolean := false;
BEGIN
    RETURN QUERY
    SELECT false, known.conflation
      FROM queen_group known
     WHERE known.queue_id = p_queue_id AND known.consumer_group = p_group;
    IF FOUND THEN
        RETURN;
    END IF;

    PERFORM 1 FROM queen_queue WHERE id = p_queue_id FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;

    IF p_namespace IS NOT NULL AND p_mode = 'new' AND p_from IS NULL THEN
        SELECT p_born
               OR EXISTS (
                   SELECT FROM queen_queue other
                     JOIN queen_group known
                       ON known.queue_id = other.id AND known.consumer_group = p_group
                    WHERE other.tenant_id = met.tenant_id
                      AND (p_namespace = '' OR other.namespace = p_namespace)
                      AND (p_task = '' OR other.task = p_task)
                      AND known.created_at <= met.created_at)
          INTO v_born
          FROM queen_queue met
         WHERE met.id = p_queue_id;
    END IF;

    INSERT INTO queen_group (queue_id, consumer_group, subscription_mode, subscription_timestamp,
                             conflation)
    VALUES (p_queue_id, p_group, p_mode,
            CASE WHEN p_mode = 'new' THEN coalesce(p_from, clock_timestamp()) ELSE p_from END,
            p_conflation)
    ON CONFLICT DO NOTHING;
    v_created := FOUND;

    IF v_created AND p_from IS NOT NULL THEN
        INSERT INTO queen_cursor (partition_id, consumer_group, committed)
        SELECT lane.id, p_group,
               coalesce(
                   (SELECT segment.base_offset - 1
                      FROM queen_segment segment
                     WHERE segment.partition_id = lane.id AND segment.created_at >= p_from
                     ORDER BY segment.base_offset
                     LIMIT 1),
                   lane.last_offset)
          FROM queen_partition lane
         WHERE lane.queue_id = p_queue_id
         ORDER BY lane.id
        ON CONFLICT DO NOTHING;
    ELSIF v_created AND p_mode = 'new' AND NOT v_born THEN
        INSERT INTO queen_cursor (partition_id, consumer_group, committed)
        SELECT lane.id, p_group, lane.last_offset
          FROM queen_partition lane
         WHERE lane.queue_id = p_queue_id
         ORDER BY lane.id
        ON CONFLICT DO NOTHING;
    END IF;

    RETURN QUERY
    SELECT v_created, known.conflation
      FROM queen_group known
     WHERE known.queue_id = p_queue_id AND known.consumer_group = p_group;
END;
$$;
