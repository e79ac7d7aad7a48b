-- queen_kv_namespace_list_v1: the key/value namespaces of a tenant, and how many keys each has.
--
-- Called by  brokers/store/kv_calls.py, kv_namespace_list()
-- Reads      queen_kv
-- Locks      none
-- Cost       one scan over the tenant's part of the primary key: a page for a console
-- Answers    at most p_namespaces_max rows, in byte order; expired entries are counted until
--            they are pruned

CREATE OR REPLACE FUNCTION queen_kv_namespace_list_v1(
    p_tenant_id      uuid,
    p_namespaces_max integer
)
RETURNS TABLE (namespace text, keys bigint)
LANGUAGE sql
STABLE
AS $$
    SELECT entry.ns, count(*)
      FROM queen_kv entry
     WHERE entry.tenant_id = p_tenant_id AND entry.version > 0
     GROUP BY entry.ns
     ORDER BY entry.ns
     LIMIT p_namespaces_max
$$;
