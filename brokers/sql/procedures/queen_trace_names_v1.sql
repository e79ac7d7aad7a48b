-- queen_trace_names_v1: one page of a tenant's trace names, the most recently used first.
--
-- Called by  brokers/store/trace_calls.py, trace_names()
-- Reads      queen_trace_name, queen_partition, queen_queue
-- Cost       grows with all named traces of the tenant.
-- Answers    first a row that has the count of all names; then at most p_limit rows.
--
-- What was noted about a queue that is deleted now does not count.

CREATE OR REPLACE FUNCTION queen_trace_names_v1(
    p_tenant_id uuid,
    p_limit     bigint,
    p_offset    bigint
)
RETURNS TABLE (
    total bigint, name text, traces bigint, messages bigint, last_seen_at timestamptz
)
LANGUAGE sql
STABLE
AS $$
    WITH counted AS MATERIALIZED (
        SELECT named.name, count(*) AS traces,
               count(DISTINCT named.transaction_hash) AS messages,
               max(named.created_at) AS last_seen_at
          FROM queen_trace_name named
          JOIN queen_partition lane ON lane.uid = named.partition_uid
          JOIN queen_queue queue ON queue.id = lane.queue_id AND queue.tenant_id = p_tenant_id
         WHERE named.tenant_id = p_tenant_id
         GROUP BY named.name
    )
    (SELECT count(*), NULL, NULL, NULL, NULL FROM counted)
    UNION ALL
    (SELECT NULL, name, traces, messages, last_seen_at
       FROM counted
      ORDER BY last_seen_at DESC, name
      LIMIT p_limit OFFSET p_offset)
$$;
