-- queen_parked_series_v1: how many pops waited over time, at each queue of each broker.
--
-- Called by  brokers/store/history_calls.py, parked_series()
-- Reads      queen_queue, queen_queue_counter
-- Locks      nothing
-- Cost       grows with the kept buckets of the window, of all queues.
-- Answers    one row a bucket, queue and broker where any waited, by bucket, queue and broker, of
--            the p_queues_max queues where most did.

CREATE OR REPLACE FUNCTION queen_parked_series_v1(
    p_tenant_id  uuid,
    p_queue      text,
    p_from       timestamptz,
    p_to         timestamptz,
    p_minutes    integer,
    p_queues_max integer
)
RETURNS TABLE (queue_name text, bucket timestamptz, server_id text, parked double precision)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_nestloop = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_now  timestamptz := clock_timestamp();
    v_span smallint := queen_history_span_v1(p_minutes);
BEGIN
    RETURN QUERY
    WITH most AS MATERIALIZED (
        SELECT queue.id, queue.name
          FROM queen_queue queue
          JOIN (
            SELECT kept.queue_id, sum(kept.parked::double precision) AS parked
              FROM queen_queue_counter kept
             WHERE kept.span = v_span AND kept.bucket >= queen_bucket_v1(p_from, p_minutes)
               AND kept.bucket < p_to AND kept.parked > 0
             GROUP BY kept.queue_id
          ) AS waited ON waited.queue_id = queue.id
         WHERE queue.tenant_id = p_tenant_id AND (p_queue IS NULL OR queue.name = p_queue)
         ORDER BY waited.parked DESC, queue.name
         LIMIT p_queues_max
    ), counted AS MATERIALIZED (
        SELECT most.name, queen_bucket_v1(kept.bucket, p_minutes) AS bucket, kept.server_id,
               sum(kept.parked::double precision / greatest(kept.parked_samples, 1)) AS parked
          FROM queen_queue_counter kept
          JOIN most ON most.id = kept.queue_id
         WHERE kept.span = v_span AND kept.bucket >= queen_bucket_v1(p_from, p_minutes)
           AND kept.bucket < p_to AND kept.parked > 0
         GROUP BY 1, 2, 3
    )
    SELECT counted.name, counted.bucket, counted.server_id,
           counted.parked / least(
               greatest(ceil(extract(epoch FROM v_now - counted.bucket) / 60 / v_span), 1),
               p_minutes / v_span)::double precision
      FROM counted
     ORDER BY counted.bucket, counted.name, counted.server_id;
END;
$$;
