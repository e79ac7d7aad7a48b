-- queen_stream_ack_v1: move the source's cursor as a cycle of a stream says.
--
-- Called by  queen_stream_cycle_v1
-- Reads      queen_cursor, queen_partition, and for a part of a batch what
--            queen_transaction_resolve_v1 reads
-- Writes     queen_cursor
-- Locks      nothing: the caller holds the cursor's row.
-- Cost       one update; for a part of a batch one pass over the lease's span.
-- Answers    an outcome, how many messages were completed, and whether the lease ended:
--              done
--              lease    there is no live lease of that id: nothing was done
--              already  p_transaction, the last message of the part, was completed before
--              beyond   the lease does not hold p_count messages any more
--
-- p_action: 1 the whole leased batch; 2 its next p_count messages, the lease stays on the
-- rest; 3 none, the lease ends, and no budget is charged. A part counts from where the lease
-- begins, or from the part before: the positions of what was handed out, so that nothing
-- unhandled is passed even if retention deleted the first messages meanwhile. The name of the
-- last message guards a repetition whose first answer was lost; the count decides.

CREATE OR REPLACE FUNCTION queen_stream_ack_v1(
    p_partition_id bigint,
    p_group        text,
    p_lease_id     uuid,
    p_transaction  text,
    p_action       integer,
    p_count        bigint,
    OUT outcome    text,
    OUT completed  bigint,
    OUT released   boolean
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
    v_place     queen_cursor;
    v_log_start bigint;
    v_new       bigint;
BEGIN
    completed := 0;
    released := false;
    SELECT * INTO v_place FROM queen_cursor
     WHERE partition_id = p_partition_id AND consumer_group = p_group;
    -- Read after the lock: a lease that ran out while we waited is dead.
    IF NOT coalesce(v_place.lease_id = p_lease_id
                    AND v_place.lease_expires_at > clock_timestamp(), false)
    THEN
        outcome := 'lease';
        RETURN;
    END IF;

    outcome := 'done';
    v_new := v_place.batch_end;
    IF p_action = 3 THEN
        v_new := v_place.committed;
        released := true;
    ELSIF p_action = 2 THEN
        IF p_transaction IS NOT NULL AND (queen_transaction_resolve_v1(
               p_partition_id, ARRAY[p_transaction], v_place.committed,
               v_place.batch_start, v_place.batch_end))[1] <= v_place.committed
        THEN
            outcome := 'already';
            RETURN;
        END IF;
        v_new := greatest(v_place.committed, v_place.batch_start - 1) + p_count;
        IF v_new > v_place.batch_end THEN
            outcome := 'beyond';
            RETURN;
        END IF;
        completed := p_count;
    ELSE
        SELECT log_start INTO v_log_start FROM queen_partition WHERE id = p_partition_id;
        completed := greatest(v_new - greatest(v_place.committed, v_log_start - 1), 0);
        completed := least(coalesce(p_count, completed), completed);
    END IF;

    IF p_action <> 3 AND v_new >= v_place.batch_end THEN
        released := true;
        UPDATE queen_cursor
           SET committed = greatest(committed, v_new),
               total_consumed = total_consumed + completed,
               lease_id = NULL, lease_expires_at = NULL, batch_start = NULL, batch_end = NULL,
               last_lease_id = lease_id,
               retry_at = NULL, retry_offset = NULL, retry_count = 0,
               attempt_offset = NULL, attempt_count = 0, expiry_count = 0,
               solo_until = CASE WHEN solo_until > v_new THEN solo_until END
         WHERE partition_id = p_partition_id AND consumer_group = p_group;
    ELSIF p_action = 3 THEN
        UPDATE queen_cursor
           SET lease_id = NULL, lease_expires_at = NULL, batch_start = NULL, batch_end = NULL
         WHERE partition_id = p_partition_id AND consumer_group = p_group;
    ELSIF v_new > v_place.committed THEN
        UPDATE queen_cursor
           SET committed = v_new,
               total_consumed = total_consumed + completed,
               retry_at = NULL,
               retry_count = CASE WHEN retry_offset > v_new THEN retry_count ELSE 0 END,
               retry_offset = CASE WHEN retry_offset > v_new THEN retry_offset END,
               attempt_offset = greatest(attempt_offset, v_new + 1),
               expiry_count = 0,
               solo_until = CASE WHEN solo_until > v_new THEN solo_until END
         WHERE partition_id = p_partition_id AND consumer_group = p_group;
    END IF;
END;
$$;
