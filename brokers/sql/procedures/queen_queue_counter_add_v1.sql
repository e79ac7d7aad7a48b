-- queen_queue_counter_add_v1: add what one broker counted to the present minute.
--
-- Called by  brokers/store/calls.py, queue_counter_add()
-- Writes     queen_queue_counter
-- Locks      its rows of this broker, in ascending queue: no other broker touches them.
-- Cost       one probe a queue.
-- Answers    nothing.
--
-- p_counts holds ten numbers a queue, in the order of the columns.

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
           bucket, queue_id, server_id, push_requests, push_messages, pop_requests, pop_messages,
           pop_empty, ack_success, ack_failed, transactions, conflated, dead_letters)
    SELECT date_trunc('minute', clock_timestamp()), asked.queue_id, p_server_id,
           p_counts[asked.no * 10 - 9], p_counts[asked.no * 10 - 8], p_counts[asked.no * 10 - 7],
           p_counts[asked.no * 10 - 6], p_counts[asked.no * 10 - 5], p_counts[asked.no * 10 - 4],
           p_counts[asked.no * 10 - 3], p_counts[asked.no * 10 - 2], p_counts[asked.no * 10 - 1],
           p_counts[asked.no * 10]
      FROM unnest(p_queue_ids) WITH ORDINALITY AS asked(queue_id, no)
     ORDER BY asked.queue_id
    ON CONFLICT (bucket, queue_id, server_id) DO UPDATE
       SET push_requests = kept.push_requests + excluded.push_requests,
           push_messages = kept.push_messages + excluded.push_messages,
           pop_requests = kept.pop_requests + excluded.pop_requests,
           pop_messages = kept.pop_messages + excluded.pop_messages,
           pop_empty = kept.pop_empty + excluded.pop_empty,
           ack_success = kept.ack_success + excluded.ack_success,
           ack_failed = kept.ack_failed + excluded.ack_failed,
           transactions = kept.transactions + excluded.transactions,
           conflated = kept.conflated + excluded.conflated,
           dead_letters = kept.dead_letters + excluded.dead_letters
$$;
