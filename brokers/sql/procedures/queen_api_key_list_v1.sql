-- queen_api_key_list_v1: API keys for people to look at; nothing that proves one.
--
-- Called by  brokers/store/api_key_calls.py, api_key_list()
-- Reads      queen_api_key
-- Cost       p_limit rows
-- Answers    by id, behind p_after; those revoked or run out only with p_all

CREATE OR REPLACE FUNCTION queen_api_key_list_v1(p_after bigint, p_limit integer, p_all boolean)
RETURNS TABLE (
    id bigint, key_id text, name text, role text, tenant_id uuid, queue_prefix text,
    created_at timestamptz, expires_at timestamptz, revoked_at timestamptz,
    last_used_at timestamptz
)
LANGUAGE sql
STABLE
AS $$
    SELECT key.id, key.key_id, key.name, key.role, key.tenant_id, key.queue_prefix,
           key.created_at, key.expires_at, key.revoked_at, key.last_used_at
      FROM queen_api_key key
     WHERE key.id > p_after
       AND (p_all OR (key.revoked_at IS NULL
                      AND (key.expires_at IS NULL OR key.expires_at > clock_timestamp())))
     ORDER BY key.id
     LIMIT p_limit
$$;
