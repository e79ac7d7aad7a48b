-- queen_redrive_create_v1: begin a job that moves dead letters of a queue back into a log.
--
-- Called by  brokers/store/redrive_calls.py, redrive_create()
-- Reads      queen_queue
-- Writes     queen_redrive
-- Locks      finished jobs that are forgotten, skipping those that others hold.
-- Cost       a few index probes; at most 100 jobs of the tenant are counted and forgotten.
-- Answers    the outcome: created | unknown (no such queue) | full (p_running_max jobs of the
--            tenant are running); and the id of the new job.
--
-- Letters that fail after the job began are no part of it, or one that fails again would go
-- round for ever: p_to is bounded by now. Jobs that ended p_keep_days ago are forgotten here.

CREATE OR REPLACE FUNCTION queen_redrive_create_v1(
    p_tenant_id        uuid,
    p_queue            text,
    p_group            text,
    p_error_text       text,
    p_from             timestamptz,
    p_to               timestamptz,
    p_target_queue     text,
    p_target_partition text,
    p_rate             integer,
    p_total            bigint,
    p_running_max      integer,
    p_keep_days        integer
)
RETURNS TABLE (outcome text, redrive_id uuid)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_queue_id bigint;
    v_id       uuid;
BEGIN
    SELECT id INTO v_queue_id FROM queen_queue WHERE tenant_id = p_tenant_id AND name = p_queue;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'unknown', NULL::uuid;
        RETURN;
    END IF;
    DELETE FROM queen_redrive
     WHERE id = ANY (ARRAY(
           SELECT old.id
             FROM queen_redrive old
            WHERE old.tenant_id = p_tenant_id
              AND old.created_at < clock_timestamp() - make_interval(days => p_keep_days)
              AND old.finished_at < clock_timestamp() - make_interval(days => p_keep_days)
            ORDER BY old.created_at
            LIMIT 100
              FOR UPDATE SKIP LOCKED));
    IF (SELECT count(*)
          FROM queen_redrive
         WHERE tenant_id = p_tenant_id AND state = 'running') >= p_running_max THEN
        RETURN QUERY SELECT 'full', NULL::uuid;
        RETURN;
    END IF;
    INSERT INTO queen_redrive (tenant_id, queue_id, queue_name, consumer_group, error_text,
                               failed_from, failed_to, target_queue, target_partition, rate,
                               total, next_at)
    VALUES (p_tenant_id, v_queue_id, p_queue, p_group, p_error_text, p_from,
            least(p_to, clock_timestamp()), p_target_queue, p_target_partition, p_rate, p_total,
            clock_timestamp())
    RETURNING id INTO v_id;
    RETURN QUERY SELECT 'created', v_id;
END;
$$;
