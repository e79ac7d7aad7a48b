-- queen_stream_sources_v1: the source queues of some stream queries of a tenant.
--
-- Called by  brokers/store/api_key_calls.py, stream_sources()
-- Reads      queen_stream_query
-- Cost       an index probe an id and a name
-- Answers    each name once

CREATE OR REPLACE FUNCTION queen_stream_sources_v1(
    p_tenant_id uuid, p_ids uuid[], p_names text[]
)
RETURNS TABLE (queue text)
LANGUAGE sql
STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
    SELECT query.source_queue
      FROM unnest(p_ids) AS asked(id)
      JOIN queen_stream_query query ON query.id = asked.id AND query.tenant_id = p_tenant_id
     UNION
    SELECT query.source_queue
      FROM unnest(p_names) AS asked(name)
      JOIN queen_stream_query query
        ON query.tenant_id = p_tenant_id AND query.name = asked.name
$$;
