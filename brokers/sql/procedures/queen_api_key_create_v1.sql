-- queen_api_key_create_v1: a new API key, known by the hash of its text.
--
-- Called by  brokers/store/api_key_calls.py, api_key_create()
-- Reads      queen_api_key
-- Writes     queen_api_key; its trigger queen_system (key `apiKeys`)
-- Locks      the version's row, so that two creators count one after the other
-- Cost       counts the keys in force: at most p_keys_max
-- Raises     QN035 when there are p_keys_max in force: every broker holds them all in memory
--
-- p_expires_s is null for a key that does not run out.

CREATE OR REPLACE FUNCTION queen_api_key_create_v1(
    p_key_id       text,
    p_digest       bytea,
    p_name         text,
    p_role         text,
    p_tenant_id    uuid,
    p_queue_prefix text,
    p_expires_s    bigint,
    p_keys_max     integer
)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO queen_api_key (key_id, digest, name, role, tenant_id, queue_prefix, expires_at)
    VALUES (p_key_id, p_digest, p_name, p_role, p_tenant_id, p_queue_prefix,
            clock_timestamp() + make_interval(secs => p_expires_s));
    -- The trigger has the version's row by now: who comes second sees the first one's key.
    IF (SELECT count(*) FROM queen_api_key key
         WHERE key.revoked_at IS NULL
           AND (key.expires_at IS NULL OR key.expires_at > clock_timestamp())) > p_keys_max
    THEN
        RAISE EXCEPTION 'there are % API keys in force already: revoke some', p_keys_max
            USING ERRCODE = 'QN035';
    END IF;
END;
$$;
