-- queen_api_key_changes_v1: every API key in force, where anything changed since a version.
--
-- Called by  brokers/store/api_key_calls.py, api_key_changes(); once a second by every broker
-- Reads      queen_system (key `apiKeys`), queen_api_key
-- Locks      nothing
-- Cost       one index probe when nothing changed; else all keys in force
-- Answers    no row when the version is p_known (null: none is known). Else one row a key,
--            each with the version; one row without a key when there are none.
--
-- Version and keys come from one snapshot, and versions commit in their order.

CREATE OR REPLACE FUNCTION queen_api_key_changes_v1(p_known bigint)
RETURNS TABLE (
    version bigint, id bigint, digest bytea, name text, role text, tenant_id uuid,
    queue_prefix text, expires_at timestamptz
)
LANGUAGE sql
STABLE
AS $$
    SELECT present.version, key.id, key.digest, key.name, key.role, key.tenant_id,
           key.queue_prefix, key.expires_at
      FROM (SELECT coalesce((SELECT (value #>> '{}')::bigint FROM queen_system
                              WHERE key = 'apiKeys'), 0) AS version) AS present
      LEFT JOIN queen_api_key key
             ON key.revoked_at IS NULL
            AND (key.expires_at IS NULL OR key.expires_at > clock_timestamp())
     WHERE present.version IS DISTINCT FROM p_known
$$;
