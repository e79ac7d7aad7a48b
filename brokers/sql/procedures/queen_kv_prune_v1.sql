-- queen_kv_prune_v1: remove some of the expired key/value entries.
--
-- Called by  brokers/store/kv_calls.py, kv_prune()
-- Writes     queen_kv, queen_usage_delta
-- Locks      the rows it removes; those that others hold are passed over, so it never waits
-- Cost       p_rows_max index entries to remove, and as many to count what is left
-- Answers    one row: how many went; how many expired ones are left (at most p_rows_max are
--            counted); the age of the oldest of them in seconds
--
-- Nobody needs it to be right: an expired entry is gone for every reader already. It takes
-- no version, and a row that a call has locked in order to revive it is not taken from it.

CREATE OR REPLACE FUNCTION queen_kv_prune_v1(p_rows_max integer)
RETURNS TABLE (removed integer, waiting integer, oldest_s double precision)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET lock_timeout = '200ms'
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    WITH gone AS (
    DELETE FROM queen_kv entry
     USING (
        SELECT stored.tenant_id, stored.ns, stored.key FROM queen_kv stored
         WHERE stored.expires_at <= v_now
         ORDER BY stored.expires_at
         LIMIT p_rows_max
           FOR UPDATE SKIP LOCKED
     ) AS expired
     WHERE entry.tenant_id = expired.tenant_id AND entry.ns = expired.ns
       AND entry.key = expired.key
    RETURNING entry.tenant_id, entry.version,
              octet_length(entry.ns) + octet_length(entry.key) + octet_length(entry.value) AS size
    ), told AS (
        -- Off what metered tenants use, without waiting for anybody.
        INSERT INTO queen_usage_delta (tenant_id, kind, rows, bytes)
        SELECT usage.tenant_id, usage.kind, -count(*), -sum(gone.size)
          FROM gone
          JOIN queen_usage usage ON usage.tenant_id = gone.tenant_id AND usage.kind = 'kv'
         WHERE gone.version > 0
         GROUP BY usage.tenant_id, usage.kind
    )
    SELECT count(*) INTO removed FROM gone;

    SELECT count(*), coalesce(extract(epoch FROM v_now - min(stored.expires_at)), 0)
      INTO waiting, oldest_s
      FROM (
        SELECT queen_kv.expires_at FROM queen_kv
         WHERE queen_kv.expires_at <= v_now
         ORDER BY queen_kv.expires_at
         LIMIT p_rows_max
      ) AS stored;
    RETURN NEXT;
END;
$$;
