-- queen_api_key_used_v1: when keys were last used, as one broker saw it.
--
-- Called by  brokers/store/api_key_calls.py, api_key_used(); once a minute by a broker
-- Writes     queen_api_key.last_used_at, which moves no version
-- Locks      the keys' rows, by id
-- Cost       one index probe a key

CREATE OR REPLACE FUNCTION queen_api_key_used_v1(p_ids bigint[], p_moments timestamptz[])
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM 1 FROM queen_api_key key WHERE key.id = ANY (p_ids) ORDER BY key.id FOR NO KEY UPDATE;
    UPDATE queen_api_key key
       SET last_used_at = greatest(key.last_used_at, used.moment)
      FROM unnest(p_ids, p_moments) AS used(id, moment)
     WHERE key.id = used.id;
END;
$$;
