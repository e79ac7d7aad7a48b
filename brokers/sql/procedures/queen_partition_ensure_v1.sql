-- queen_partition_ensure_v1: the ids of queues and partitions by name, created where missing.
--
-- Called by  brokers/store/calls.py, partition_ensure()
-- Reads      queen_queue, queen_partition
-- Writes     queen_queue, queen_partition: only what is missing.
-- Locks      nothing when all exist. Else queue rows by name (key share, which a delete
--            waits for), then new partition rows by (queue, name), then the quota row of a
--            tenant with bounds.
-- Cost       two index probes a pair.
-- Answers    one row per pair, in no order, numbered as asked from 1.
-- Raises     QN033, QN034 when a tenant would have more queues or partitions than its quota
--
-- p_metered is false for what was accepted before: spooled messages, timers that are due.
--
-- A partition may only be born while its queue is held: without the key share, a delete
-- that commits in between would leave a partition that nobody can reach.

CREATE OR REPLACE FUNCTION queen_partition_ensure_v1(
    p_tenant_id  uuid,
    p_queues     text[],
    p_partitions text[],
    p_metered    boolean
)
RETURNS TABLE (
    pair_no integer, queue_id bigint, config_version bigint, encryption_enabled boolean,
    partition_id bigint, partition_uid uuid
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_missing_queues boolean;
    v_missing        boolean;
BEGIN
    SELECT coalesce(bool_or(queue.id IS NULL), false), coalesce(bool_or(lane.id IS NULL), false)
      INTO v_missing_queues, v_missing
      FROM unnest(p_queues, p_partitions) AS asked(queue, lane)
      LEFT JOIN LATERAL (
        SELECT held.id
          FROM queen_queue held
         WHERE held.tenant_id = p_tenant_id AND held.name = asked.queue
         LIMIT 1
     ) AS queue ON true
      LEFT JOIN queen_partition lane
             ON lane.queue_id = queue.id AND lane.name = asked.lane;

    IF v_missing_queues THEN
        PERFORM queen_queue_create_v1(p_tenant_id, p_queues, false);
    END IF;
    IF v_missing THEN
        PERFORM 1
           FROM queen_queue queue
          WHERE queue.tenant_id = p_tenant_id AND queue.name = ANY (p_queues)
          ORDER BY queue.name
            FOR KEY SHARE;
        INSERT INTO queen_partition (queue_id, name)
        SELECT DISTINCT queue.id, asked.lane
          FROM unnest(p_queues, p_partitions) AS asked(queue, lane)
         CROSS JOIN LATERAL (
            SELECT held.id
              FROM queen_queue held
             WHERE held.tenant_id = p_tenant_id AND held.name = asked.queue
             LIMIT 1
         ) AS queue
         WHERE NOT EXISTS (
               SELECT FROM queen_partition lane
                WHERE lane.queue_id = queue.id AND lane.name = asked.lane)
         ORDER BY queue.id, asked.lane
        ON CONFLICT DO NOTHING;
        -- Last of all, and once: whoever holds the quota row waits for nobody.
        IF FOUND AND p_metered THEN
            PERFORM queen_quota_admit_v1(p_tenant_id, true);
        END IF;
    END IF;

    RETURN QUERY
    SELECT asked.no::integer, queue.id, queue.config_version, queue.encryption_enabled,
           lane.id, lane.uid
      FROM unnest(p_queues, p_partitions) WITH ORDINALITY AS asked(queue, lane, no)
     CROSS JOIN LATERAL (
        SELECT held.id, held.config_version, held.encryption_enabled
          FROM queen_queue held
         WHERE held.tenant_id = p_tenant_id AND held.name = asked.queue
         LIMIT 1
     ) AS queue
      JOIN queen_partition lane
        ON lane.queue_id = queue.id AND lane.name = asked.lane;
END;
$$;
