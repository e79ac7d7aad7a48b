-- queen_kv_weight_v1: what some tenants have under some keys, expired entries included.
--
-- Called by  queen_kv_apply_v1, with the keys locked, before and after what it does
-- Reads      queen_kv
-- Cost       one index probe a key of those tenants
-- Answers    one row a tenant of p_metered, by tenant

CREATE OR REPLACE FUNCTION queen_kv_weight_v1(
    p_metered uuid[], p_tenants uuid[], p_ops smallint[], p_namespaces text[], p_keys text[]
)
RETURNS TABLE (tenant_id uuid, rows bigint, bytes bigint)
LANGUAGE sql
STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
    SELECT metered.tenant_id, count(entry.key),
           coalesce(sum(octet_length(entry.ns) + octet_length(entry.key)
                        + octet_length(entry.value)), 0)::bigint
      FROM unnest(p_metered) AS metered(tenant_id)
      LEFT JOIN (
           SELECT DISTINCT asked.tenant, asked.ns, asked.key
             FROM unnest(p_tenants, p_ops, p_namespaces, p_keys) AS asked(tenant, op, ns, key)
            WHERE asked.op > 2) AS written
             ON written.tenant = metered.tenant_id
      LEFT JOIN queen_kv entry
             ON entry.tenant_id = written.tenant AND entry.ns = written.ns
            AND entry.key = written.key AND entry.version > 0
     GROUP BY metered.tenant_id
     ORDER BY metered.tenant_id
$$;
