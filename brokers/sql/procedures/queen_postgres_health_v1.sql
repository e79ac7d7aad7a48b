-- queen_postgres_health_v1: what tells first that PostgreSQL is not well.
--
-- Called by  brokers/store/dashboard_calls.py, postgres_health()
-- Reads      the statistics views
-- Locks      nothing
-- Cost       one row a connection of the server and a table of ours.
-- Answers    one row.
--              sees_all        whether this role may look at other roles' sessions: if not, the
--                              oldest transaction is that of our own
--              oldest_tx_*     of the client that has been in a transaction for longest, of any
--                              database (it keeps vacuum from removing what is dead); null: nobody is
--              waiting         sessions that wait for a lock
--              worst_*         the table of ours with most dead rows
--              wal_bytes       written since the beginning; null on a standby

CREATE OR REPLACE FUNCTION queen_postgres_health_v1()
RETURNS TABLE (
    version text, standby boolean, up_s double precision, connections bigint,
    connections_max integer, active bigint, waiting bigint, sees_all boolean,
    oldest_tx_s double precision, oldest_tx_state text, oldest_tx_application text,
    oldest_tx_pid integer, dead_rows bigint, live_rows bigint, worst_table text,
    worst_dead_rows bigint, wal_bytes bigint, deadlocks bigint, blocks_hit bigint,
    blocks_read bigint, database_bytes bigint
)
LANGUAGE plpgsql
STABLE
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    WITH sessions AS MATERIALIZED (
        SELECT session.pid, session.state, session.application_name, session.xact_start,
               session.wait_event_type
          FROM pg_stat_activity session
         WHERE session.backend_type = 'client backend' AND session.pid <> pg_backend_pid()
    ), oldest AS (
        SELECT session.*
          FROM sessions session
         WHERE session.xact_start IS NOT NULL
         ORDER BY session.xact_start
         LIMIT 1
    ), ours AS MATERIALIZED (
        SELECT stat.relname::text AS name, stat.n_dead_tup AS dead, stat.n_live_tup AS live
          FROM pg_stat_user_tables stat
         WHERE stat.relname LIKE 'queen\_%'
    ), worst AS (
        SELECT ours.* FROM ours WHERE ours.dead > 0 ORDER BY ours.dead DESC, ours.name LIMIT 1
    )
    SELECT current_setting('server_version'), pg_is_in_recovery(),
           extract(epoch FROM v_now - pg_postmaster_start_time())::double precision,
           (SELECT count(*) FROM sessions) + 1, current_setting('max_connections')::integer,
           (SELECT count(*) FROM sessions WHERE sessions.state = 'active'),
           (SELECT count(*) FROM sessions WHERE sessions.wait_event_type = 'Lock'),
           pg_has_role('pg_read_all_stats', 'USAGE'),
           extract(epoch FROM v_now - oldest.xact_start)::double precision, oldest.state,
           oldest.application_name, oldest.pid,
           (SELECT coalesce(sum(ours.dead), 0)::bigint FROM ours),
           (SELECT coalesce(sum(ours.live), 0)::bigint FROM ours),
           worst.name, worst.dead,
           CASE WHEN NOT pg_is_in_recovery()
                THEN pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint END,
           base.deadlocks, base.blks_hit, base.blks_read, pg_database_size(base.datid)
      FROM pg_stat_database base
      LEFT JOIN oldest ON true
      LEFT JOIN worst ON true
     WHERE base.datname = current_database();
END;
$$;
