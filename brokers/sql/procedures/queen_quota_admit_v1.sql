-- queen_quota_admit_v1: whether a tenant may have the queues and partitions that it has now.
--
-- Called by  queen_queue_create_v1, queen_queue_configure_v1, queen_partition_ensure_v1, after
--            they have created some
-- Reads      queen_quota, queen_queue, queen_partition
-- Locks      the tenant's quota row (no key update), so that of two creators the second counts
--            what the first has made. It comes behind the new rows in the lock order; nothing
--            else is taken by whoever holds it.
-- Cost       one index probe for a tenant without bounds; else it counts up to the bound
-- Raises     QN033 (queues), QN034 (partitions): too many, and nothing was created
--
-- Existing queues and partitions are never counted for: this is asked only when some were made.

CREATE OR REPLACE FUNCTION queen_quota_admit_v1(p_tenant_id uuid, p_partitions boolean)
RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    v_quota queen_quota%ROWTYPE;
BEGIN
    IF p_tenant_id = '00000000-0000-0000-0000-000000000001' THEN
        RETURN;
    END IF;
    SELECT * INTO v_quota FROM queen_quota
     WHERE tenant_id = p_tenant_id
       AND (max_queues IS NOT NULL OR max_partitions IS NOT NULL)
       FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF v_quota.max_queues IS NOT NULL AND (SELECT count(*) FROM (
            SELECT FROM queen_queue queue WHERE queue.tenant_id = p_tenant_id
             LIMIT v_quota.max_queues + 1) AS counted) > v_quota.max_queues
    THEN
        RAISE EXCEPTION 'the tenant may have % queues', v_quota.max_queues
            USING ERRCODE = 'QN033';
    END IF;
    IF p_partitions AND v_quota.max_partitions IS NOT NULL AND (SELECT count(*) FROM (
            SELECT FROM queen_queue queue
              JOIN queen_partition lane ON lane.queue_id = queue.id
             WHERE queue.tenant_id = p_tenant_id
             LIMIT v_quota.max_partitions + 1) AS counted) > v_quota.max_partitions
    THEN
        RAISE EXCEPTION 'the tenant may have % partitions', v_quota.max_partitions
            USING ERRCODE = 'QN034';
    END IF;
END;
$$;
