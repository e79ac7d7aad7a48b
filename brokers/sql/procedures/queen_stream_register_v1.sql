-- queen_stream_register_v1: make a stream query known by its name, or find it again.
--
-- Called by  brokers/store/stream_calls.py, stream_register()
-- Reads      queen_stream_query
-- Writes     queen_stream_query, queen_stream_reclaim
-- Locks      for a new name under a cap, the tenant's advisory lock; the query's row; for a
--            reset the query's advisory lock, which waits for its cycles that are under way,
--            at most p_wait_ms.
-- Cost       two probes, whatever the size of the state.
-- Answers    one row, whose outcome is
--              fresh       it was not there
--              known       same hash: queues are rewritten, state is kept
--              reset       another hash and p_reset: the state is empty now
--              mismatch    another hash: nothing was written
--              denied      new, and the tenant has no grant: nothing was written
--              full        new, and the tenant has p_queries_max already: nothing was written
-- Raises     55P03 when a waited-for lock is not had in time
--
-- A reset gives the query another number for its state. Cycles hold the query's advisory lock
-- from before they read that number, so none writes to the old state once this is committed;
-- queen_stream_reclaim_v1 removes the old rows behind us.

CREATE OR REPLACE FUNCTION queen_stream_register_v1(
    p_tenant_id    uuid,
    p_name         text,
    p_source_queue text,
    p_sink_queue   text,
    p_config_hash  text,
    p_reset        boolean,
    p_granted      boolean,
    p_queries_max  bigint,
    p_wait_ms      integer
)
RETURNS TABLE (outcome text, query_id uuid)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_known queen_stream_query;
BEGIN
    PERFORM set_config('lock_timeout', p_wait_ms::text, true);
    -- Nobody deletes queries, so a name that is taken stays: at most two rounds.
    LOOP
        SELECT * INTO v_known FROM queen_stream_query
         WHERE tenant_id = p_tenant_id AND name = p_name
           FOR UPDATE;
        EXIT WHEN FOUND;

        IF NOT p_granted THEN
            outcome := 'denied';
            RETURN NEXT;
            RETURN;
        END IF;
        IF p_queries_max IS NOT NULL THEN
            PERFORM pg_advisory_xact_lock(
                hashtextextended('queen_stream_tenant ' || p_tenant_id, 0));
            -- A new name that was taken while we waited is no new one.
            CONTINUE WHEN EXISTS (SELECT FROM queen_stream_query
                                   WHERE tenant_id = p_tenant_id AND name = p_name);
            IF (SELECT count(*) FROM queen_stream_query WHERE tenant_id = p_tenant_id)
               >= p_queries_max
            THEN
                outcome := 'full';
                RETURN NEXT;
                RETURN;
            END IF;
        END IF;
        INSERT INTO queen_stream_query (tenant_id, name, source_queue, sink_queue, config_hash,
                                        state)
        VALUES (p_tenant_id, p_name, p_source_queue, p_sink_queue, p_config_hash,
                nextval('queen_stream_state_number'))
        ON CONFLICT DO NOTHING
        RETURNING id INTO query_id;
        IF FOUND THEN
            outcome := 'fresh';
            RETURN NEXT;
            RETURN;
        END IF;
    END LOOP;

    query_id := v_known.id;
    outcome := CASE WHEN v_known.config_hash = p_config_hash THEN 'known'
                    WHEN p_reset THEN 'reset'
                    ELSE 'mismatch' END;
    IF outcome = 'reset' THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('queen_stream ' || query_id, 0));
        INSERT INTO queen_stream_reclaim (state) VALUES (v_known.state);
    END IF;
    IF outcome = 'reset'
       OR outcome = 'known' AND (v_known.source_queue, v_known.sink_queue)
                                IS DISTINCT FROM (p_source_queue, p_sink_queue)
    THEN
        UPDATE queen_stream_query
           SET source_queue = p_source_queue, sink_queue = p_sink_queue,
               config_hash = p_config_hash,
               state = CASE WHEN outcome = 'reset' THEN nextval('queen_stream_state_number')
                            ELSE v_known.state END,
               updated_at = clock_timestamp()
         WHERE id = v_known.id;
    END IF;
    RETURN NEXT;
END;
$$;
