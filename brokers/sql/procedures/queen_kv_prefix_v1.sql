-- queen_kv_prefix_v1: one page of a namespace's entries whose key begins with a text.
--
-- Called by  queen_kv_read_v1, queen_kv_apply_v1; brokers/store/kv_calls.py, kv_prefix()
-- Reads      queen_kv
-- Locks      none
-- Cost       one range of the primary key: at most p_limit + 1 entries, and the expired
--            ones among them; a value beyond the page is not read.
-- Answers    the entries in byte order of their keys, behind p_after. `more` on the last of
--            them: others follow. `expired` can only be true with p_include_expired.
--
-- A page ends early once its values have p_bytes_max bytes; the entry that crosses that is
-- kept, so a page is empty only when there is nothing. With p_keys_only values cost nothing.

CREATE OR REPLACE FUNCTION queen_kv_prefix_v1(
    p_tenant_id       uuid,
    p_ns              text,
    p_prefix          text,
    p_after           text,
    p_limit           integer,
    p_keys_only       boolean,
    p_include_expired boolean,
    p_bytes_max       bigint,
    p_now             timestamptz
)
RETURNS TABLE (
    key text, value bytea, version bigint, expires_at timestamptz, updated_at timestamptz,
    expired boolean, more boolean
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_below text := queen_prefix_end_v1(p_prefix);
BEGIN
    RETURN QUERY
    SELECT page.key, CASE WHEN p_keys_only THEN NULL ELSE page.value END, page.version,
           page.expires_at, page.updated_at, page.expired, page.more
      FROM (
        SELECT entry.key, entry.value, entry.version, entry.expires_at, entry.updated_at,
               coalesce(entry.expires_at <= p_now, false) AS expired,
               row_number() OVER so_far AS no,
               lead(entry.key) OVER (ORDER BY entry.key) IS NOT NULL AS more,
               sum(octet_length(entry.value)) OVER so_far - octet_length(entry.value) AS spent
          FROM (
            SELECT stored.* FROM queen_kv stored
             WHERE stored.tenant_id = p_tenant_id AND stored.ns = p_ns
               AND stored.key >= p_prefix AND stored.key > coalesce(p_after, '')
               AND stored.key < v_below
               AND stored.version > 0
               AND (p_include_expired OR stored.expires_at IS NULL OR stored.expires_at > p_now)
             ORDER BY stored.tenant_id, stored.ns, stored.key
             LIMIT p_limit + 1
          ) AS entry
        WINDOW so_far AS (ORDER BY entry.key)
      ) AS page
     WHERE page.no <= p_limit AND (page.no = 1 OR p_keys_only OR page.spent < p_bytes_max)
     ORDER BY page.key;
END;
$$;
