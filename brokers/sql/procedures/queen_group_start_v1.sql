-- queen_group_start_v1: change from when on a group is subscribed to its queues.
--
-- Called by  brokers/store/group_calls.py, group_start()
-- Reads      queen_queue
-- Writes     queen_group
-- Locks      the group's rows, in ascending id.
-- Cost       one probe a queue of the tenant.
-- Answers    how many subscriptions were changed.
--
-- No cursor moves: it is where those begin that are not there yet.

CREATE OR REPLACE FUNCTION queen_group_start_v1(
    p_tenant_id uuid,
    p_group     text,
    p_at        timestamptz
)
RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
    v_ids   bigint[];
    v_count bigint;
BEGIN
    v_ids := ARRAY(
        SELECT registered.id
          FROM queen_queue queue
          JOIN queen_group registered
            ON registered.queue_id = queue.id AND registered.consumer_group = p_group
         WHERE queue.tenant_id = p_tenant_id
         ORDER BY registered.id);
    PERFORM 1 FROM queen_group WHERE id = ANY (v_ids) ORDER BY id FOR NO KEY UPDATE;
    UPDATE queen_group
       SET subscription_timestamp = p_at, start_at = p_at
     WHERE id = ANY (v_ids);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END;
$$;
