-- queen_kv_apply_v1: the operations of a key/value call, all or nothing, in their order.
--
-- Called by  brokers/store/kv_calls.py, kv_apply(); queen_transaction_commit_v1
-- Reads      queen_kv
-- Writes     queen_kv
-- Locks      the keys that are written, in ascending (tenant, ns, key), before anything else
--            is looked at: the entry's row, or for an absent key a row that holds its place
--            (also where nothing would be created: an absence that was judged by must last
--            until the call is over). First of all in the one lock order. With p_wait_ms = 0 what
--            others hold is answered `busy`; else waits that long for each, then 55P03. Then,
--            for metered tenants that add, their usage rows by tenant (queen_usage_add_v1).
-- Cost       three statements a write, one a read, one range a getPrefix
-- Answers    rows numbered as asked from 1. Reads: as queen_kv_read_v1. A write: one row,
--              applied                                with the new version (0: deleted)
--              exists | absent | version | limit | type  not applied; the present entry
--              busy                                   not had (p_wait_ms = 0); not carried out
--            `lost` alone: the required operation `no` did not apply, so none was carried
--            out; its reason stands in `key`.
-- Raises     55P03 when a waited-for lock is not had in time
--            QN031 when a metered tenant would have more than its quota
--            QN012 when a get lies beyond the p_bytes_max bytes of the call's values
--
-- p_ops: 0 get, 1 a key of a getMany, 2 getPrefix, 3 put, 4 delete, 5 incr; putIfAbsent is a
-- put that expects version 0. A ttl of null is for ever. An operation without required may
-- name a key again: calls of several requests share one, and each sees what came before.
--
-- The clock is read once, after the locks are ours: an entry that expired while we waited is
-- gone. The version is taken under the row's lock. A place that nobody filled is given up.

CREATE OR REPLACE FUNCTION queen_kv_apply_v1(
    p_tenants    uuid[],
    p_ops        smallint[],
    p_namespaces text[],
    p_keys       text[],
    p_values     bytea[],
    p_expects    bigint[],
    p_ttls       bigint[],
    p_deltas     numeric[],
    p_floors     numeric[],
    p_ceilings   numeric[],
    p_required   boolean[],
    p_afters     text[],
    p_limits     integer[],
    p_keys_only  boolean[],
    p_bytes_max  bigint,
    p_wait_ms    integer
)
RETURNS TABLE (
    no integer, verdict text, key text, value bytea, version bigint,
    expires_at timestamptz, updated_at timestamptz
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_op      record;
    v_entry   queen_kv%ROWTYPE;
    v_live    boolean;
    v_value   bytea;
    v_version bigint;
    v_expires_at timestamptz;
    v_now     timestamptz;
    v_places  integer := 0;
    v_busy    text[] := '{}';
    v_spent   bigint := 0;
    v_lost    boolean := false;
    v_metered uuid[];
    v_weighed smallint[];
    v_before  bigint[];
BEGIN
    -- Not to be waited for means: not at the row of somebody's unfinished insert either.
    PERFORM set_config('lock_timeout', greatest(p_wait_ms, 50)::text, true);

    FOR v_op IN
        SELECT asked.tenant, asked.ns, asked.key
          FROM unnest(p_tenants, p_ops, p_namespaces, p_keys) AS asked(tenant, op, ns, key)
         WHERE asked.op > 2
         GROUP BY asked.tenant, asked.ns, asked.key
         ORDER BY asked.tenant, asked.ns COLLATE "C", asked.key COLLATE "C"
    LOOP
        LOOP
            IF p_wait_ms > 0 THEN
                PERFORM 1 FROM queen_kv entry
                  WHERE entry.tenant_id = v_op.tenant AND entry.ns = v_op.ns
                    AND entry.key = v_op.key
                    FOR UPDATE;
            ELSE
                PERFORM 1 FROM queen_kv entry
                  WHERE entry.tenant_id = v_op.tenant AND entry.ns = v_op.ns
                    AND entry.key = v_op.key
                    FOR UPDATE SKIP LOCKED;
            END IF;
            EXIT WHEN FOUND;
            IF p_wait_ms = 0 AND EXISTS (
                SELECT 1 FROM queen_kv entry
                 WHERE entry.tenant_id = v_op.tenant AND entry.ns = v_op.ns
                   AND entry.key = v_op.key)
            THEN
                v_busy := v_busy || concat_ws(chr(30), v_op.tenant, v_op.ns, v_op.key);
                EXIT;
            END IF;
            INSERT INTO queen_kv (tenant_id, ns, key, value, version)
            VALUES (v_op.tenant, v_op.ns, v_op.key, '', 0)
            ON CONFLICT DO NOTHING;
            IF FOUND THEN
                v_places := v_places + 1;
                EXIT;
            END IF;
            -- It came into being meanwhile: lock it.
        END LOOP;
    END LOOP;
    v_now := clock_timestamp();

    -- Most calls are the default tenant's, who is not metered.
    IF '00000000-0000-0000-0000-000000000001' <> ANY (p_tenants) THEN
        v_metered := ARRAY(
            SELECT quota.tenant_id FROM queen_quota quota
             WHERE quota.tenant_id = ANY (p_tenants)
               AND quota.tenant_id <> '00000000-0000-0000-0000-000000000001'
               AND (quota.max_rows IS NOT NULL OR quota.max_bytes IS NOT NULL)
             ORDER BY quota.tenant_id);
        IF cardinality(v_metered) > 0 THEN
            -- What somebody else holds may change meanwhile, and that is for them to tell.
            v_weighed := ARRAY(
                SELECT CASE WHEN concat_ws(chr(30), asked.tenant, asked.ns, asked.key)
                                 = ANY (v_busy) THEN 0 ELSE asked.op END::smallint
                  FROM unnest(p_tenants, p_ops, p_namespaces, p_keys)
                       WITH ORDINALITY AS asked(tenant, op, ns, key, place)
                 ORDER BY asked.place);
            v_before := ARRAY(
                SELECT unnest(ARRAY[weight.rows, weight.bytes])
                  FROM queen_kv_weight_v1(v_metered, p_tenants, v_weighed, p_namespaces, p_keys)
                       AS weight);
        END IF;
    END IF;

    IF true = ANY (p_required) THEN
        SELECT asked.no, judged.reason, entry.value, coalesce(entry.version, 0)
          INTO no, key, value, version
          FROM unnest(p_tenants, p_ops, p_namespaces, p_keys, p_expects, p_deltas, p_floors,
                      p_ceilings, p_required)
               WITH ORDINALITY AS asked(tenant, op, ns, key, expect, delta, least, most,
                                        required, no)
          LEFT JOIN queen_kv entry
                 ON entry.tenant_id = asked.tenant AND entry.ns = asked.ns
                AND entry.key = asked.key AND entry.version > 0
                AND (entry.expires_at IS NULL OR entry.expires_at > v_now)
         CROSS JOIN LATERAL queen_kv_verdict_v1(
                    asked.op, asked.expect, asked.delta, asked.least, asked.most,
                    coalesce(entry.version, 0), entry.value) AS judged(reason)
         WHERE asked.required AND asked.op > 2 AND judged.reason IS NOT NULL
         ORDER BY asked.no
         LIMIT 1;
        v_lost := FOUND;
        IF v_lost THEN
            verdict := 'lost';
            RETURN NEXT;
        END IF;
    END IF;

    IF p_ops && ARRAY[0, 1]::smallint[] AND NOT v_lost THEN
        FOR no, verdict, key, value, version, expires_at, updated_at IN
            SELECT * FROM queen_kv_read_v1(
                p_tenants, array_replace(p_ops, 2::smallint, 3::smallint), p_namespaces, p_keys,
                NULL, NULL, NULL, p_bytes_max, v_now)
        LOOP
            IF verdict = 'cut' AND p_ops[no] = 0 THEN
                RAISE EXCEPTION 'the values that the call reads have more than % bytes', p_bytes_max
                    USING ERRCODE = 'QN012';
            END IF;
            v_spent := v_spent + coalesce(octet_length(value), 0);
            RETURN NEXT;
        END LOOP;
    END IF;

    FOR v_op IN
        SELECT asked.*
          FROM unnest(p_tenants, p_ops, p_namespaces, p_keys, p_values, p_expects, p_ttls,
                      p_deltas, p_floors, p_ceilings)
               WITH ORDINALITY AS asked(tenant, op, ns, key, value, expect, ttl, delta,
                                        least, most, no)
         WHERE asked.op > 1 AND NOT v_lost
         ORDER BY asked.no
    LOOP
        IF v_op.op = 2 THEN
            FOR verdict, key, value, version, expires_at, updated_at IN
                SELECT page.verdict, page.key, page.value, page.version, page.expires_at,
                       page.updated_at
                  FROM queen_kv_read_v1(
                       ARRAY[v_op.tenant], ARRAY[2]::smallint[], ARRAY[v_op.ns],
                       ARRAY[v_op.key], ARRAY[p_afters[v_op.no]], ARRAY[p_limits[v_op.no]],
                       ARRAY[p_keys_only[v_op.no]], p_bytes_max - v_spent, v_now) AS page
            LOOP
                no := v_op.no;
                v_spent := v_spent + coalesce(octet_length(value), 0);
                RETURN NEXT;
            END LOOP;
            CONTINUE;
        END IF;

        no := v_op.no;
        key := v_op.key;
        value := NULL;
        version := 0;
        expires_at := NULL;
        updated_at := NULL;
        IF cardinality(v_busy) > 0
           AND concat_ws(chr(30), v_op.tenant, v_op.ns, v_op.key) = ANY (v_busy) THEN
            verdict := 'busy';
            RETURN NEXT;
            CONTINUE;
        END IF;

        -- A put that expects nothing need not look.
        IF v_op.op <> 3 OR v_op.expect IS NOT NULL THEN
            SELECT * INTO v_entry FROM queen_kv entry
             WHERE entry.tenant_id = v_op.tenant AND entry.ns = v_op.ns
               AND entry.key = v_op.key;
            v_live := FOUND AND v_entry.version > 0
                      AND (v_entry.expires_at IS NULL OR v_entry.expires_at > v_now);
            IF v_live THEN
                value := v_entry.value;
                version := v_entry.version;
            END IF;
            verdict := queen_kv_verdict_v1(
                v_op.op, v_op.expect, v_op.delta, v_op.least, v_op.most, version, value);
            IF verdict IS NOT NULL THEN
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;

        verdict := 'applied';
        IF v_op.op = 4 THEN
            DELETE FROM queen_kv entry
             WHERE entry.tenant_id = v_op.tenant AND entry.ns = v_op.ns AND entry.key = v_op.key;
            value := NULL;
            version := 0;
            RETURN NEXT;
            CONTINUE;
        END IF;

        updated_at := v_now;
        v_version := nextval('queen_kv_version');
        IF v_op.op = 3 THEN
            v_value := v_op.value;
            value := NULL;  -- whoever put it has it
        ELSE
            v_value := convert_to(trim_scale(
                CASE WHEN v_live THEN queen_kv_number_v1(value) ELSE 0 END + v_op.delta)::text,
                'UTF8');
            value := v_value;
        END IF;
        version := v_version;
        -- An incr that counts on leaves the end of the window where it was.
        IF v_op.op = 5 AND v_live THEN
            v_expires_at := v_entry.expires_at;
        ELSE
            v_expires_at := v_now + make_interval(secs => v_op.ttl);
        END IF;
        expires_at := v_expires_at;
        UPDATE queen_kv entry
           SET value = v_value, version = v_version, expires_at = v_expires_at,
               updated_at = v_now,
               created_at = CASE WHEN entry.version > 0
                                  AND (entry.expires_at IS NULL OR entry.expires_at > v_now)
                                 THEN entry.created_at ELSE v_now END
         WHERE entry.tenant_id = v_op.tenant AND entry.ns = v_op.ns AND entry.key = v_op.key;
        IF NOT FOUND THEN  -- deleted by this very call
            INSERT INTO queen_kv (tenant_id, ns, key, value, version, expires_at,
                                  created_at, updated_at)
            VALUES (v_op.tenant, v_op.ns, v_op.key, v_value, v_version, v_expires_at,
                    v_now, v_now);
        END IF;
        RETURN NEXT;
    END LOOP;

    IF cardinality(v_metered) > 0 AND NOT v_lost THEN
        PERFORM queen_usage_add_v1(
                    after.tenant_id, 'kv', after.rows - v_before[2 * after.no - 1],
                    after.bytes - v_before[2 * after.no])
           FROM queen_kv_weight_v1(v_metered, p_tenants, v_weighed, p_namespaces, p_keys)
                WITH ORDINALITY AS after(tenant_id, rows, bytes, no);
    END IF;

    IF v_places > 0 THEN
        DELETE FROM queen_kv entry
         USING unnest(p_tenants, p_namespaces, p_keys) AS asked(tenant, ns, key)
         WHERE entry.tenant_id = asked.tenant AND entry.ns = asked.ns
           AND entry.key = asked.key AND entry.version = 0;
    END IF;
END;
$$;
