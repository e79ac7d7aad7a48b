-- queen_dashboard_queues_v1: the queues that most waits in, of all tenants.
--
-- Called by  brokers/store/dashboard_calls.py, queues()
-- Reads      queen_queue, queen_queue_statistics, queen_queue_counter, queen_group_statistics
-- Locks      nothing
-- Cost       one probe a queue, the kept minutes of the last three, and the groups of the queues
--            that are told.
-- Answers    p_limit rows: those with most pending messages when last counted, then the busiest.
--              age_s            of that count; null when there was none, and then the counts are
--              pushed ...       in the latest minute that was written; null without one
--              oldest_s         age of the oldest message that a group has not consumed, null: none

CREATE OR REPLACE FUNCTION queen_dashboard_queues_v1(p_limit integer)
RETURNS TABLE (
    tenant_id uuid, name text, paused boolean, partitions bigint, pending bigint,
    processing bigint, dead_letters bigint, age_s double precision, pushed bigint, popped bigint,
    acked bigint, failed bigint, oldest_s double precision
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    WITH kept AS MATERIALIZED (
        SELECT counted.queue_id, counted.bucket, counted.push_messages, counted.pop_messages,
               counted.ack_success, counted.ack_failed,
               max(counted.bucket) OVER (PARTITION BY counted.queue_id) AS latest
          FROM queen_queue_counter counted
         WHERE counted.span = 1 AND counted.bucket > v_now - interval '3 minutes'
           AND counted.server_id <> ''
    ), minute AS MATERIALIZED (
        SELECT kept.queue_id, sum(kept.push_messages)::bigint AS pushed,
               sum(kept.pop_messages)::bigint AS popped, sum(kept.ack_success)::bigint AS acked,
               sum(kept.ack_failed)::bigint AS failed
          FROM kept
         WHERE kept.bucket = kept.latest
         GROUP BY kept.queue_id
    ), told AS MATERIALIZED (
        SELECT queue.id, queue.tenant_id, queue.name, queue.paused, known.partitions,
               known.pending, known.processing, known.dead_letters, known.computed_at,
               minute.pushed, minute.popped, minute.acked, minute.failed
          FROM queen_queue queue
          LEFT JOIN queen_queue_statistics known ON known.queue_id = queue.id
          LEFT JOIN minute ON minute.queue_id = queue.id
         ORDER BY coalesce(known.pending, 0) DESC,
                  coalesce(minute.pushed, 0) + coalesce(minute.popped, 0) DESC, queue.name
         LIMIT p_limit
    )
    SELECT told.tenant_id, told.name, told.paused, told.partitions, told.pending, told.processing,
           told.dead_letters, extract(epoch FROM v_now - told.computed_at)::double precision,
           told.pushed, told.popped, told.acked, told.failed,
           (SELECT extract(epoch FROM v_now - min(behind.oldest_at))::double precision
              FROM queen_group_statistics behind
             WHERE behind.queue_id = told.id)
      FROM told
     ORDER BY coalesce(told.pending, 0) DESC,
              coalesce(told.pushed, 0) + coalesce(told.popped, 0) DESC, told.name;
END;
$$;
