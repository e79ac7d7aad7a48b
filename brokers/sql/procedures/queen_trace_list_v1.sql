-- queen_trace_list_v1: the traces of one message, oldest first.
--
-- Called by  brokers/store/trace_calls.py, trace_list()
-- Reads      queen_trace
-- Cost       the traces of that message, at most p_limit of them.
-- Answers    at most p_limit rows, and no more than begin within the first p_bytes_max bytes of
--            their data.
--
-- Asks the trace itself whose it is, so traces are found when their queue is long deleted.
-- p_tenant_id is null while tenancy is off.

CREATE OR REPLACE FUNCTION queen_trace_list_v1(
    p_tenant_id      uuid,
    p_partition_uid  uuid,
    p_transaction_id text,
    p_limit          integer,
    p_bytes_max      bigint
)
RETURNS TABLE (
    id uuid, event_type text, data bytea, consumer_group text, created_at timestamptz, names text
)
LANGUAGE sql
STABLE
SET enable_seqscan = off
AS $$
    SELECT sized.id, sized.event_type, sized.data, sized.consumer_group, sized.created_at,
           sized.names
      FROM (
        SELECT trace.*,
               sum(octet_length(trace.data)) OVER (ORDER BY trace.created_at, trace.id)
               - octet_length(trace.data) AS before
          FROM (
            SELECT found.* FROM queen_trace found
             WHERE found.partition_uid = p_partition_uid
               AND found.transaction_hash = hashtextextended(p_transaction_id, 0)
               AND found.transaction_id = p_transaction_id
               AND (p_tenant_id IS NULL OR found.tenant_id = p_tenant_id)
             ORDER BY found.created_at, found.id
             LIMIT p_limit) AS trace
      ) AS sized
     WHERE sized.before < p_bytes_max
     ORDER BY sized.created_at, sized.id
$$;
