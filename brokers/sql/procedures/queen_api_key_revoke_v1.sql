-- queen_api_key_revoke_v1: from its commit on no broker that looks takes the key any more.
--
-- Called by  brokers/store/api_key_calls.py, api_key_revoke()
-- Writes     queen_api_key; its trigger queen_system (key `apiKeys`)
-- Locks      the key's row, then the version's
-- Cost       one index probe
-- Answers    revoked | already | unknown

CREATE OR REPLACE FUNCTION queen_api_key_revoke_v1(p_key_id text)
RETURNS text
LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE queen_api_key SET revoked_at = clock_timestamp()
     WHERE key_id = p_key_id AND revoked_at IS NULL;
    IF FOUND THEN
        RETURN 'revoked';
    END IF;
    IF EXISTS (SELECT FROM queen_api_key WHERE key_id = p_key_id) THEN
        RETURN 'already';
    END IF;
    RETURN 'unknown';
END;
$$;
