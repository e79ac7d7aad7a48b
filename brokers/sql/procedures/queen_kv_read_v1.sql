-- queen_kv_read_v1: the reading operations of a key/value call, all in one snapshot.
--
-- Called by  brokers/store/kv_calls.py, kv_read(); queen_kv_apply_v1
-- Reads      queen_kv
-- Locks      none
-- Cost       an index probe an operation, a range a getPrefix
-- Answers    get, getMany: a row each, `found` | `missing` | `cut` (there, but beyond the
--            bytes of the call)
--            getPrefix: a row an entry, `row`, then `more` or `end` without an entry
--
-- The values of all operations together have p_bytes_max bytes, and those of the one that
-- crosses it. A page for which nothing is left has no entry, and says whether there are any.
--
-- Numbered as asked from 1; others than reads are passed over. p_ops: 0 get, 1 a key of a
-- getMany, 2 getPrefix. STABLE, so that every statement in it sees what the call saw when
-- it began. p_now is the one instant by which the call judges expiry; null is now.

CREATE OR REPLACE FUNCTION queen_kv_read_v1(
    p_tenants    uuid[],
    p_ops        smallint[],
    p_namespaces text[],
    p_keys       text[],
    p_afters     text[],
    p_limits     integer[],
    p_keys_only  boolean[],
    p_bytes_max  bigint,
    p_now        timestamptz
)
RETURNS TABLE (
    no integer, verdict text, key text, value bytea, version bigint,
    expires_at timestamptz, updated_at timestamptz
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_spent bigint := 0;
    v_more  boolean;
    v_asked record;
    v_entry record;
BEGIN
    FOR v_entry IN
        SELECT asked.no, asked.op, asked.key AS asked_key, entry.*
          FROM unnest(p_tenants, p_ops, p_namespaces, p_keys)
               WITH ORDINALITY AS asked(tenant, op, ns, key, no)
          LEFT JOIN queen_kv entry
                 ON entry.tenant_id = asked.tenant AND entry.ns = asked.ns
                AND entry.key = asked.key AND entry.version > 0
                AND (entry.expires_at IS NULL OR entry.expires_at > v_now)
         WHERE asked.op < 2
         ORDER BY asked.no
    LOOP
        no := v_entry.no;
        key := v_entry.asked_key;
        verdict := CASE WHEN v_entry.key IS NULL THEN 'missing'
                        WHEN v_spent >= p_bytes_max THEN 'cut'
                        ELSE 'found' END;
        value := CASE WHEN verdict = 'found' THEN v_entry.value END;
        version := v_entry.version;
        expires_at := v_entry.expires_at;
        updated_at := v_entry.updated_at;
        v_spent := v_spent + coalesce(octet_length(value), 0);
        RETURN NEXT;
    END LOOP;

    FOR v_asked IN
        SELECT asked.*
          FROM unnest(p_tenants, p_ops, p_namespaces, p_keys, p_afters, p_limits, p_keys_only)
               WITH ORDINALITY AS asked(tenant, op, ns, key, after, most, keys_only, no)
         WHERE asked.op = 2
         ORDER BY asked.no
    LOOP
        no := v_asked.no;
        v_more := false;
        FOR v_entry IN
            SELECT * FROM queen_kv_prefix_v1(
                v_asked.tenant, v_asked.ns, v_asked.key, v_asked.after,
                CASE WHEN v_spent < p_bytes_max OR v_asked.keys_only
                     THEN v_asked.most ELSE 1 END,
                v_asked.keys_only OR v_spent >= p_bytes_max, false,
                p_bytes_max - v_spent, v_now)
        LOOP
            IF v_spent >= p_bytes_max AND NOT v_asked.keys_only THEN
                v_more := true;
                EXIT;
            END IF;
            verdict := 'row';
            key := v_entry.key;
            value := v_entry.value;
            version := v_entry.version;
            expires_at := v_entry.expires_at;
            updated_at := v_entry.updated_at;
            v_spent := v_spent + coalesce(octet_length(value), 0);
            v_more := v_entry.more;
            RETURN NEXT;
        END LOOP;
        verdict := CASE WHEN v_more THEN 'more' ELSE 'end' END;
        key := NULL;
        value := NULL;
        version := NULL;
        expires_at := NULL;
        updated_at := NULL;
        RETURN NEXT;
    END LOOP;
END;
$$;
