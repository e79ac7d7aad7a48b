-- queen_trace_names_v1: one page of a tenant's trace names, the most recently used first.
--
-- Called by  brokers/store/trace_calls.py, trace_names()
-- Reads      queen_trace_name, queen_partition, queen_queue
-- Cost       two probes a name of the tenant, and at most p_count_max traces of each on the page.
-- Answers    first a row that has the count of all names; then at most p_limit rows. Of a name with
--            more traces than p_count_max the newest so many are counted.
--
-- What was noted about a queue that is deleted now does not count. Names are found by going from
-- one to the next in the index, over all of the traces in between.

CREATE OR REPLACE FUNCTION queen_trace_names_v1(
    p_tenant_id uuid,
    p_limit     bigint,
    p_offset    bigint,
    p_count_max bigint
)
RETURNS TABLE (
    total bigint, name text, traces bigint, messages bigint, last_seen_at timestamptz
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
BEGIN
    RETURN QUERY
    WITH RECURSIVE known AS (
        (SELECT named.name
           FROM queen_trace_name named
          WHERE named.tenant_id = p_tenant_id
          ORDER BY named.name
          LIMIT 1)
        UNION ALL
        SELECT later.name
          FROM known
         CROSS JOIN LATERAL (
            SELECT named.name
              FROM queen_trace_name named
             WHERE named.tenant_id = p_tenant_id AND named.name > known.name
             ORDER BY named.name
             LIMIT 1
         ) AS later
    ), seen AS MATERIALIZED (
        SELECT known.name, newest.created_at AS last_seen_at
          FROM known
         CROSS JOIN LATERAL (
            SELECT named.created_at
              FROM queen_trace_name named
              JOIN queen_partition lane ON lane.uid = named.partition_uid
              JOIN queen_queue queue
                ON queue.id = lane.queue_id AND queue.tenant_id = p_tenant_id
             WHERE named.tenant_id = p_tenant_id AND named.name = known.name
             ORDER BY named.created_at DESC
             LIMIT 1
         ) AS newest
    ), page AS (
        SELECT seen.name, seen.last_seen_at
          FROM seen
         ORDER BY seen.last_seen_at DESC, seen.name
         LIMIT p_limit OFFSET p_offset
    )
    (SELECT count(*), NULL::text, NULL::bigint, NULL::bigint, NULL::timestamptz FROM seen)
    UNION ALL
    (SELECT NULL::bigint, page.name, counted.traces, counted.messages, page.last_seen_at
       FROM page
      CROSS JOIN LATERAL (
         SELECT count(*) AS traces, count(DISTINCT newest.transaction_hash) AS messages
           FROM (
             SELECT named.transaction_hash
               FROM queen_trace_name named
               JOIN queen_partition lane ON lane.uid = named.partition_uid
               JOIN queen_queue queue
                 ON queue.id = lane.queue_id AND queue.tenant_id = p_tenant_id
              WHERE named.tenant_id = p_tenant_id AND named.name = page.name
              ORDER BY named.created_at DESC
              LIMIT p_count_max
           ) AS newest
      ) AS counted
      ORDER BY page.last_seen_at DESC, page.name);
END;
$$;
