-- queen_usage_count_v1: count anew what a tenant has of a kind.
--
-- Called by  queen_usage_add_v1; brokers/store/quota_calls.py, usage_count()
-- Reads      queen_kv or queen_timer
-- Writes     queen_usage, queen_usage_delta
-- Locks      the tenant's usage row: who adds meanwhile waits, who removes does not
-- Cost       all of the tenant's rows of that kind
-- Answers    whether there was anything to count for
--
-- Count and deltas are of one snapshot, taken after the lock: what was removed before it is
-- neither counted nor a delta any more, what is removed after it is both.

CREATE OR REPLACE FUNCTION queen_usage_count_v1(p_tenant_id uuid, p_kind text)
RETURNS boolean
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM 1 FROM queen_usage WHERE tenant_id = p_tenant_id AND kind = p_kind FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    WITH taken AS (
        DELETE FROM queen_usage_delta WHERE tenant_id = p_tenant_id AND kind = p_kind
    ), counted AS (
        SELECT count(*) AS rows,
               coalesce(sum(octet_length(entry.ns) + octet_length(entry.key)
                            + octet_length(entry.value)), 0) AS bytes
          FROM queen_kv entry
         WHERE p_kind = 'kv' AND entry.tenant_id = p_tenant_id AND entry.version > 0
        UNION ALL
        SELECT count(*), 0 FROM queen_timer timer
         WHERE p_kind = 'timers' AND timer.tenant_id = p_tenant_id
    )
    UPDATE queen_usage usage
       SET rows = (SELECT sum(counted.rows) FROM counted),
           bytes = (SELECT sum(counted.bytes) FROM counted),
           counted_at = clock_timestamp()
     WHERE usage.tenant_id = p_tenant_id AND usage.kind = p_kind;
    RETURN true;
END;
$$;
