-- queen_queue_create_v1: create the missing ones of these queues, as a push or a pop does.
--
-- Called by  queen_partition_ensure_v1, queen_queue_ensure_v1
-- Reads      queen_system (by queen_txn_floor_v1)
-- Writes     queen_queue
-- Locks      the floor's advisory lock, shared, when a queue is missing; then new queue rows, by
--            name: two creators can wait, never deadlock. Then, where some were created for a
--            tenant with bounds and p_metered, its quota row.
-- Cost       one index probe a name.
-- Raises     QN033 when a metered tenant would have more queues than its quota
--
-- A queue that nobody configured leases for 60 s, and a dotted name gives its namespace
-- (before the first dot) and task (between the first and the second). It dedups for an hour.

CREATE OR REPLACE FUNCTION queen_queue_create_v1(
    p_tenant_id uuid, p_names text[], p_metered boolean
)
RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
BEGIN
    INSERT INTO queen_queue (tenant_id, name, namespace, task, lease_time, txn_class)
    SELECT p_tenant_id, asked.name,
           CASE WHEN strpos(asked.name, '.') > 0 THEN split_part(asked.name, '.', 1) ELSE '' END,
           CASE WHEN strpos(asked.name, '.') > 0 THEN split_part(asked.name, '.', 2) ELSE '' END,
           60, queen_txn_class_v1(greatest(3600, queen_txn_floor_v1()))
      FROM (SELECT DISTINCT name COLLATE "C" AS name FROM unnest(p_names) AS name) AS asked
     WHERE NOT EXISTS (
           SELECT FROM queen_queue queue
            WHERE queue.tenant_id = p_tenant_id AND queue.name = asked.name)
     ORDER BY asked.name
    ON CONFLICT DO NOTHING;
    IF FOUND AND p_metered THEN
        PERFORM queen_quota_admit_v1(p_tenant_id, false);
    END IF;
END;
$$;
