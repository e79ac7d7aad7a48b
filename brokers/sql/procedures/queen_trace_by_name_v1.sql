-- queen_trace_by_name_v1: one page of the traces under a name, oldest first.
--
-- Called by  brokers/store/trace_calls.py, trace_by_name()
-- Reads      queen_trace_name, queen_trace, queen_partition, queen_queue
-- Cost       an index entry a trace of that name up to p_count_max, and three probes each for the
--            first p_exact_max of them and for the page.
-- Answers    first a row that has the count of all matches and no id; then at most p_limit
--            rows, and no more than begin within the first p_bytes_max bytes of their data.
--
-- What was noted about a queue that is deleted now is not listed, and not counted as long as there
-- are no more than p_exact_max in all. At most p_count_max are counted. Times that are null do not
-- bound; p_until is included.

CREATE OR REPLACE FUNCTION queen_trace_by_name_v1(
    p_tenant_id uuid,
    p_name      text,
    p_since     timestamptz,
    p_until     timestamptz,
    p_limit     bigint,
    p_offset    bigint,
    p_bytes_max bigint,
    p_exact_max bigint,
    p_count_max bigint
)
RETURNS TABLE (
    total bigint, id uuid, transaction_id text, partition_uid uuid, event_type text, data bytea,
    consumer_group text, created_at timestamptz, queue_name text, partition_name text, names text
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_since timestamptz := coalesce(p_since, '-infinity');
    v_until timestamptz := coalesce(p_until, 'infinity');
BEGIN
    SELECT count(*) INTO total
      FROM (
        SELECT
          FROM queen_trace_name named
         WHERE named.tenant_id = p_tenant_id AND named.name = p_name
           AND named.created_at >= v_since AND named.created_at <= v_until
         LIMIT p_count_max
      ) AS noted;
    IF total <= p_exact_max THEN
        SELECT count(*) INTO total
          FROM queen_trace_name named
          JOIN queen_partition lane ON lane.uid = named.partition_uid
          JOIN queen_queue queue ON queue.id = lane.queue_id AND queue.tenant_id = p_tenant_id
         WHERE named.tenant_id = p_tenant_id AND named.name = p_name
           AND named.created_at >= v_since AND named.created_at <= v_until;
    END IF;
    RETURN NEXT;

    RETURN QUERY
    SELECT NULL::bigint, sized.id, sized.transaction_id, sized.partition_uid, sized.event_type,
           sized.data, sized.consumer_group, sized.created_at, sized.queue_name,
           sized.partition_name, sized.names
      FROM (
        SELECT trace.*, page.queue_name, page.partition_name,
               sum(octet_length(trace.data)) OVER (ORDER BY trace.created_at, trace.id)
               - octet_length(trace.data) AS before
          FROM (
            SELECT named.trace_id, queue.name AS queue_name, lane.name AS partition_name
              FROM queen_trace_name named
              JOIN queen_partition lane ON lane.uid = named.partition_uid
              JOIN queen_queue queue ON queue.id = lane.queue_id AND queue.tenant_id = p_tenant_id
             WHERE named.tenant_id = p_tenant_id AND named.name = p_name
               AND named.created_at >= v_since AND named.created_at <= v_until
             ORDER BY named.created_at, named.trace_id
             LIMIT p_limit OFFSET p_offset) AS page
          JOIN queen_trace trace ON trace.id = page.trace_id
      ) AS sized
     WHERE sized.before < p_bytes_max
     ORDER BY sized.created_at, sized.id;
END;
$$;
