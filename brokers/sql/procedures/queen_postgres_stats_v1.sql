-- queen_postgres_stats_v1: how PostgreSQL itself is doing, as one JSON object.
--
-- Called by  brokers/store/status_calls.py, postgres_stats()
-- Reads      the statistics views, pg_settings
-- Locks      nothing
-- Cost       one row a table of ours and a connection of the server, and the sizes of p_tables_max
--            tables.
-- Answers    one row. Queries of brokers that run for more than a second are told without their
--            values: we send those apart. Those of others (a person, the console) hold them, and
--            are not told. What is in the buffers is unknown without an extension: bufferUsage is
--            empty.

CREATE OR REPLACE FUNCTION queen_postgres_stats_v1(p_tables_max integer)
RETURNS text
LANGUAGE plpgsql
STABLE
SET timezone = 'UTC'
AS $$
DECLARE
    v_time   constant text := 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"';
    v_answer jsonb;
BEGIN
    WITH ours AS MATERIALIZED (
        SELECT stat.*, held.heap_blks_read, held.heap_blks_hit, held.idx_blks_read,
               held.idx_blks_hit, pg_total_relation_size(stat.relid) AS total_bytes,
               pg_relation_size(stat.relid) AS table_bytes, pg_indexes_size(stat.relid) AS index_bytes
          FROM pg_stat_user_tables stat
          JOIN pg_statio_user_tables held USING (relid)
         WHERE stat.relname LIKE 'queen\_%'
    ), biggest AS (
        SELECT * FROM ours ORDER BY total_bytes DESC, relname LIMIT p_tables_max
    )
    SELECT jsonb_build_object(
        'timestamp', to_char(clock_timestamp(), v_time),
        'database', (
            SELECT jsonb_build_object(
                       'name', stat.datname, 'sizeBytes', pg_database_size(stat.datid),
                       'connections', stat.numbackends, 'commits', stat.xact_commit,
                       'rollbacks', stat.xact_rollback, 'deadlocks', stat.deadlocks,
                       'tempBytes', stat.temp_bytes, 'version', current_setting('server_version'))
              FROM pg_stat_database stat
             WHERE stat.datname = current_database()),
        'databaseCache', (
            SELECT jsonb_build_object(
                       'blocksRead', stat.blks_read, 'blocksHit', stat.blks_hit,
                       'hitRatio', round(stat.blks_hit * 100.0
                                         / nullif(stat.blks_hit + stat.blks_read, 0), 2))
              FROM pg_stat_database stat
             WHERE stat.datname = current_database()),
        'tableCache', (
            SELECT coalesce(jsonb_agg(jsonb_build_object(
                       'table', relname, 'blocksRead', heap_blks_read,
                       'blocksHit', heap_blks_hit,
                       'hitRatio', round(heap_blks_hit * 100.0
                                         / nullif(heap_blks_hit + heap_blks_read, 0), 2))), '[]')
              FROM biggest),
        'indexCache', (
            SELECT coalesce(jsonb_agg(jsonb_build_object(
                       'table', relname, 'blocksRead', idx_blks_read, 'blocksHit', idx_blks_hit,
                       'hitRatio', round(idx_blks_hit * 100.0
                                         / nullif(idx_blks_hit + idx_blks_read, 0), 2))), '[]')
              FROM biggest),
        'cacheSummary', (
            SELECT jsonb_build_object(
                       'tableHitRatio', round(sum(heap_blks_hit) * 100.0
                           / nullif(sum(heap_blks_hit + heap_blks_read), 0), 2),
                       'indexHitRatio', round(sum(idx_blks_hit) * 100.0
                           / nullif(sum(idx_blks_hit + idx_blks_read), 0), 2))
              FROM ours),
        'deadTuples', (
            SELECT coalesce(jsonb_agg(jsonb_build_object(
                       'table', relname, 'live', n_live_tup, 'dead', n_dead_tup,
                       'deadRatio', round(n_dead_tup * 100.0
                                          / nullif(n_live_tup + n_dead_tup, 0), 2))), '[]')
              FROM biggest),
        'hotUpdates', (
            SELECT coalesce(jsonb_agg(jsonb_build_object(
                       'table', relname, 'updates', n_tup_upd, 'hotUpdates', n_tup_hot_upd,
                       'hotRatio', round(n_tup_hot_upd * 100.0 / nullif(n_tup_upd, 0), 2))), '[]')
              FROM biggest),
        'activeQueries', (
            SELECT coalesce(jsonb_agg(slow.one), '[]')
              FROM (
                SELECT jsonb_build_object(
                           'pid', session.pid, 'state', session.state,
                           'application', session.application_name,
                           'durationMs', (extract(epoch FROM clock_timestamp()
                                                  - session.query_start) * 1000)::bigint,
                           'waitEvent', session.wait_event,
                           'query', CASE WHEN session.application_name LIKE 'queen %'
                                         THEN left(session.query, 200)
                                         ELSE 'not shown: it is no broker''s' END) AS one
                  FROM pg_stat_activity session
                 WHERE session.datname = current_database() AND session.state = 'active'
                   AND session.pid <> pg_backend_pid()
                   AND session.query_start < clock_timestamp() - interval '1 second'
                 ORDER BY session.query_start
                 LIMIT 50
              ) AS slow),
        'autovacuumStatus', (
            SELECT coalesce(jsonb_agg(jsonb_build_object(
                       'table', relname, 'lastVacuum', to_char(last_vacuum, v_time),
                       'lastAutovacuum', to_char(last_autovacuum, v_time),
                       'lastAutoanalyze', to_char(last_autoanalyze, v_time),
                       'vacuums', vacuum_count + autovacuum_count)), '[]')
              FROM biggest),
        'bufferConfig', (
            SELECT jsonb_object_agg(setting.name, setting.setting || coalesce(setting.unit, ''))
              FROM pg_settings setting
             WHERE setting.name IN ('shared_buffers', 'effective_cache_size', 'work_mem',
                                    'maintenance_work_mem', 'max_connections')),
        'bufferUsage', '[]'::jsonb,
        'tableSizes', (
            SELECT coalesce(jsonb_agg(jsonb_build_object(
                       'table', relname, 'totalBytes', total_bytes, 'tableBytes', table_bytes,
                       'indexBytes', index_bytes, 'rows', n_live_tup)), '[]')
              FROM biggest)
    ) INTO v_answer;
    RETURN v_answer::text;
END;
$$;
