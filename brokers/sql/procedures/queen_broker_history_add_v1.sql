-- queen_broker_history_add_v1: add what one broker counted and measured to the present minute.
--
-- Called by  brokers/store/history_calls.py, broker_history_add()
-- Writes     queen_broker_history, queen_cell_counter
-- Locks      this broker's row of the present minute, then the counters of the cell, by name.
-- Cost       one row, and one for each counter.
-- Answers    nothing
--
-- p_values holds 27 numbers, in the order of the columns: 11 counters that the cell keeps as
-- well, 2 more that are added up, 2 of which the greatest stays, and 12 of which the last does.
-- The last 3 are those of the spool, and null where it is not known what lies there.

CREATE OR REPLACE FUNCTION queen_broker_history_add_v1(p_server_id text, p_values bigint[])
RETURNS void
LANGUAGE sql
SET enable_seqscan = off
AS $$
    INSERT INTO queen_broker_history AS kept (
           bucket, server_id,
           push_requests, push_messages, pop_requests, pop_messages, ack_requests,
           ack_messages, ack_success, ack_failed, transactions, dead_letters, db_errors,
           pop_lag_ms, pop_lag_count, pop_lag_max_ms, loop_lag_max_us, loop_lag_us, cpu_user,
           cpu_system, rss_bytes, pool_size, pool_idle, waiting, parked, uptime_s,
           spool_pending, spool_bytes, spool_failed)
    VALUES (queen_bucket_v1(clock_timestamp(), 1), p_server_id,
            p_values[1], p_values[2], p_values[3], p_values[4], p_values[5], p_values[6],
            p_values[7], p_values[8], p_values[9], p_values[10], p_values[11], p_values[12],
            p_values[13], p_values[14], p_values[15], p_values[16], p_values[17], p_values[18],
            p_values[19], p_values[20], p_values[21], p_values[22], p_values[23], p_values[24],
            p_values[25], p_values[26], p_values[27])
    ON CONFLICT (bucket, server_id) DO UPDATE
       SET push_requests = kept.push_requests + excluded.push_requests,
           push_messages = kept.push_messages + excluded.push_messages,
           pop_requests = kept.pop_requests + excluded.pop_requests,
           pop_messages = kept.pop_messages + excluded.pop_messages,
           ack_requests = kept.ack_requests + excluded.ack_requests,
           ack_messages = kept.ack_messages + excluded.ack_messages,
           ack_success = kept.ack_success + excluded.ack_success,
           ack_failed = kept.ack_failed + excluded.ack_failed,
           transactions = kept.transactions + excluded.transactions,
           dead_letters = kept.dead_letters + excluded.dead_letters,
           db_errors = kept.db_errors + excluded.db_errors,
           pop_lag_ms = kept.pop_lag_ms + excluded.pop_lag_ms,
           pop_lag_count = kept.pop_lag_count + excluded.pop_lag_count,
           pop_lag_max_ms = greatest(kept.pop_lag_max_ms, excluded.pop_lag_max_ms),
           loop_lag_max_us = greatest(kept.loop_lag_max_us, excluded.loop_lag_max_us),
           loop_lag_us = excluded.loop_lag_us,
           cpu_user = excluded.cpu_user,
           cpu_system = excluded.cpu_system,
           rss_bytes = excluded.rss_bytes,
           pool_size = excluded.pool_size,
           pool_idle = excluded.pool_idle,
           waiting = excluded.waiting,
           parked = excluded.parked,
           uptime_s = excluded.uptime_s,
           spool_pending = excluded.spool_pending,
           spool_bytes = excluded.spool_bytes,
           spool_failed = excluded.spool_failed;

    INSERT INTO queen_cell_counter AS kept (name, value)
    SELECT counted.name, p_values[counted.no]
      FROM unnest(ARRAY[
           'push_requests', 'push_messages', 'pop_requests', 'pop_messages', 'ack_requests',
           'ack_messages', 'ack_success', 'ack_failed', 'transactions', 'dead_letters',
           'db_errors'
           ]) WITH ORDINALITY AS counted(name, no)
     ORDER BY counted.name
    ON CONFLICT (name) DO UPDATE SET value = kept.value + excluded.value
$$;
