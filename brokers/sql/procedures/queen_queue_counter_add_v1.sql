-- queen_queue_counter_add_v1: add what one broker counted to the present buckets.
--
-- Called by  brokers/store/history_calls.py, queue_counter_add()
-- Writes     queen_queue_counter
-- Locks      this broker's own rows of the present buckets, by width and queue.
-- Cost       four rows a queue: one for each width of bucket.
-- Answers    nothing
--
-- p_counts holds 16 numbers a queue, in the order of the columns. All are added up but the last,
-- of which the greatest stays.

CREATE OR REPLACE FUNCTION queen_queue_counter_add_v1(
    p_server_id text,
    p_queue_ids bigint[],
    p_counts    bigint[]
)
RETURNS void
LANGUAGE sql
SET enable_seqscan = off
AS $$
    INSERT INTO queen_queue_counter AS kept (
           span, bucket, queue_id, server_id,
           push_requests, push_messages, pop_requests, pop_messages, pop_empty, ack_requests,
           ack_success, ack_failed, transactions, conflated, dead_letters, pop_lag_ms,
           pop_lag_count, parked, parked_samples, pop_lag_max_ms)
    SELECT width.span, queen_bucket_v1(clock_timestamp(), width.span), asked.queue_id,
           p_server_id,
           p_counts[asked.no * 16 - 15], p_counts[asked.no * 16 - 14],
           p_counts[asked.no * 16 - 13], p_counts[asked.no * 16 - 12],
           p_counts[asked.no * 16 - 11], p_counts[asked.no * 16 - 10],
           p_counts[asked.no * 16 - 9], p_counts[asked.no * 16 - 8],
           p_counts[asked.no * 16 - 7], p_counts[asked.no * 16 - 6],
           p_counts[asked.no * 16 - 5], p_counts[asked.no * 16 - 4],
           p_counts[asked.no * 16 - 3], p_counts[asked.no * 16 - 2],
           p_counts[asked.no * 16 - 1], p_counts[asked.no * 16]
      FROM unnest(ARRAY[1, 15, 60, 360]::smallint[]) AS width(span)
     CROSS JOIN unnest(p_queue_ids) WITH ORDINALITY AS asked(queue_id, no)
     ORDER BY width.span, asked.queue_id
    ON CONFLICT (span, bucket, queue_id, server_id) DO UPDATE
       SET push_requests = kept.push_requests + excluded.push_requests,
           push_messages = kept.push_messages + excluded.push_messages,
           pop_requests = kept.pop_requests + excluded.pop_requests,
           pop_messages = kept.pop_messages + excluded.pop_messages,
           pop_empty = kept.pop_empty + excluded.pop_empty,
           ack_requests = kept.ack_requests + excluded.ack_requests,
           ack_success = kept.ack_success + excluded.ack_success,
           ack_failed = kept.ack_failed + excluded.ack_failed,
           transactions = kept.transactions + excluded.transactions,
           conflated = kept.conflated + excluded.conflated,
           dead_letters = kept.dead_letters + excluded.dead_letters,
           pop_lag_ms = kept.pop_lag_ms + excluded.pop_lag_ms,
           pop_lag_count = kept.pop_lag_count + excluded.pop_lag_count,
           parked = kept.parked + excluded.parked,
           parked_samples = kept.parked_samples + excluded.parked_samples,
           pop_lag_max_ms = greatest(kept.pop_lag_max_ms, excluded.pop_lag_max_ms)
$$;
