-- queen_kv_namespace_page_v1: a page of a tenant's key/value namespaces, and how full each is.
--
-- Called by  brokers/store/kv_calls.py, kv_namespace_page()
-- Reads      queen_kv
-- Locks      nothing
-- Cost       a probe for each namespace, and p_count_max + 1 index entries of it.
-- Answers    at most p_limit rows behind p_after, in byte order: a namespace, and how many keys
--            it has, of which no more than p_count_max + 1 are counted. Expired entries are
--            counted until they are pruned.

CREATE OR REPLACE FUNCTION queen_kv_namespace_page_v1(
    p_tenant_id uuid,
    p_after     text,
    p_limit     integer,
    p_count_max integer
)
RETURNS TABLE (namespace text, keys bigint)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
#variable_conflict use_column
DECLARE
    v_found integer := 0;
BEGIN
    namespace := coalesce(p_after, '');
    WHILE v_found < p_limit LOOP
        SELECT entry.ns INTO namespace
          FROM queen_kv entry
         WHERE entry.tenant_id = p_tenant_id AND entry.ns > namespace
         ORDER BY entry.ns
         LIMIT 1;
        EXIT WHEN NOT FOUND;
        SELECT count(*) INTO keys
          FROM (
            SELECT
              FROM queen_kv entry
             WHERE entry.tenant_id = p_tenant_id AND entry.ns = namespace
             LIMIT p_count_max + 1
          ) AS counted;
        v_found := v_found + 1;
        RETURN NEXT;
    END LOOP;
END;
$$;
