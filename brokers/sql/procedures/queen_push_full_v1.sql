-- queen_push_full_v1: which groups of a flush a queue that enforces its maxSize has no room for.
--
-- Called by  queen_message_push_v1, when a queue of the flush has such a bound
-- Reads      queen_queue, queen_partition
-- Locks      nothing: the caller holds the partitions' rows.
-- Cost       one pass over the partitions of each such queue of the flush.
-- Answers    a row a group that is refused; divisible: some of it may fit, or was seen before.
--
-- Counted are the messages that the logs of all partitions hold, as committed: what other
-- calls are about to commit to other partitions of the queue is not seen, so that a queue may
-- pass its bound by what is under way at that moment, and by no more. To lock the queue's row
-- instead would let one push after the other into it.
-- Groups are taken in their order while they fit. A single message whose hash was seen is let
-- through: it is a duplicate, and a duplicate of what is stored is no refusal.

CREATE OR REPLACE FUNCTION queen_push_full_v1(
    p_partition_ids bigint[],
    p_ends          bytea[],
    p_verdicts      text[],
    p_suspects      integer[]
)
RETURNS TABLE (group_no integer, divisible boolean)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_group record;
    v_queue bigint;
    v_room  bigint;
    v_known boolean;
BEGIN
    FOR v_group IN
        SELECT asked.no::integer AS no, queue.id AS queue_id, queue.max_size,
               octet_length(asked.ends) / 4 AS messages
          FROM unnest(p_partition_ids, p_ends, p_verdicts)
               WITH ORDINALITY AS asked(partition_id, ends, verdict, no)
          JOIN queen_partition lane ON lane.id = asked.partition_id
          JOIN queen_queue queue ON queue.id = lane.queue_id
         WHERE asked.verdict = 'stored' AND queue.enforce AND queue.max_size > 0
         ORDER BY queue.id, asked.no
    LOOP
        IF v_queue IS DISTINCT FROM v_group.queue_id THEN
            v_queue := v_group.queue_id;
            SELECT v_group.max_size - coalesce(sum(lane.last_offset - lane.log_start + 1), 0)
              INTO v_room
              FROM queen_partition lane
             WHERE lane.queue_id = v_queue;
        END IF;
        v_known := v_group.no = ANY (p_suspects);
        IF v_group.messages <= v_room THEN
            v_room := v_room - v_group.messages;
        ELSIF v_group.messages > 1 OR NOT v_known THEN
            group_no := v_group.no;
            divisible := v_group.messages > 1 AND (v_room > 0 OR v_known);
            RETURN NEXT;
        END IF;
    END LOOP;
END;
$$;
