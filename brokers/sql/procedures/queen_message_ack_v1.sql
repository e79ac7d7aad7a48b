-- queen_message_ack_v1: move cursors as acknowledgments say.
--
-- Called by  brokers/store/calls.py, message_ack(); queen_transaction_commit_v1
-- Reads      queen_partition, queen_queue, queen_group, queen_segment, queen_txn
-- Writes     queen_cursor, queen_dead_letter, queen_wake
-- Locks      cursor rows in ascending (partition, group), waiting for each; queen_wake
--            rows last, in ascending (queue, group).
-- Cost       per distinct (partition, group, request, lease) three statements and one pass over the
--            lease's span.
-- Answers    one row per acknowledgment, numbered as asked from 1, whose outcome is
--              done | noop          success
--              already              negative, but the cursor has passed the message
--              unresolvable         no such id in reach
--              lease                the lease is not live, or not this one
--              unknown              no cursor: the group never popped that partition
--              foreign              not the tenant's partition (tenancy on)
--              rejected             the request mentions leases and none fits this ack
--              leaseless            it names no lease, and the queue requires one
--
-- p_actions: 0 completed, 1 retry, 2 failed, 3 dlq; at one offset the greater wins, and in
-- one unit the lowest offset with a negative wins: what is completed above it redelivers.
-- Several requests may share a call; each is judged by itself, in the order of p_requests.
-- The clock is read after the row is ours: a lease that ran out while we waited is dead.
-- A lease that ended by completion stays known as last_lease_id, so that a repeated ack
-- under it, whose first answer was lost, is a no-op and not an error.

CREATE OR REPLACE FUNCTION queen_message_ack_v1(
    p_tenant_id      uuid,
    p_requests       integer[],
    p_partition_uids uuid[],
    p_groups         text[],
    p_lease_ids      uuid[],
    p_transactions   text[],
    p_actions        smallint[],
    p_errors         text[],
    p_required       uuid[],
    p_mentions_lease boolean
)
RETURNS TABLE (
    ack_no integer, outcome text, lease_released boolean, dead_lettered boolean,
    conflated bigint, queue_id bigint, partition_id bigint
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
    v_unit      record;
    v_place     record;
    v_now       timestamptz;
    v_lease     uuid;
    v_verdict   text;
    v_offsets   bigint[];
    v_low       bigint;
    v_action    smallint;
    v_high      bigint;
    v_new       bigint;
    v_charge    bigint;
    v_exhausted boolean;
    v_released  boolean;
    v_buried    boolean;
    v_complete  boolean;
    v_woken_q   bigint[] := '{}';
    v_woken_g   text[] := '{}';
BEGIN
    FOR v_unit IN
        SELECT lane.id AS lane_id, lane.queue_id, asked.consumer_group, asked.lease_id,
               array_agg(asked.no::integer ORDER BY asked.no) AS nos,
               array_agg(asked.transaction ORDER BY asked.no) AS transactions,
               array_agg(asked.action ORDER BY asked.no) AS actions
          FROM unnest(p_requests, p_partition_uids, p_groups, p_lease_ids, p_transactions,
                      p_actions)
               WITH ORDINALITY
               AS asked(request, partition_uid, consumer_group, lease_id, transaction, action, no)
          LEFT JOIN (queen_partition lane JOIN queen_queue queue ON queue.id = lane.queue_id)
                 ON lane.uid = asked.partition_uid
                AND (p_tenant_id IS NULL OR queue.tenant_id = p_tenant_id)
         GROUP BY lane.id, lane.queue_id, asked.consumer_group, asked.request, asked.lease_id
         ORDER BY lane.id, asked.consumer_group COLLATE "C", asked.request, asked.lease_id
    LOOP
        IF v_unit.lane_id IS NULL THEN
            RETURN QUERY SELECT no, CASE WHEN p_tenant_id IS NULL THEN 'unknown' ELSE 'foreign' END,
                                false, false, NULL::bigint, NULL::bigint, NULL::bigint
                           FROM unnest(v_unit.nos) AS no;
            CONTINUE;
        END IF;

        PERFORM 1 FROM queen_cursor place
          WHERE place.partition_id = v_unit.lane_id
            AND place.consumer_group = v_unit.consumer_group
            FOR UPDATE;
        SELECT place.*, lane.log_start, queue.retry_limit, queue.require_lease,
               CASE WHEN queue.enforce AND queue.retry_delay > 0
                    THEN make_interval(secs => least(queue.retry_delay, 3153600000000) / 1000.0)
               END AS retry_delay,
               queue.dead_letter_queue OR queue.dlq_after_max_retries AS keeps_dead_letters,
               coalesce(registered.conflation, false) AS conflation
          INTO v_place
          FROM queen_cursor place
          JOIN queen_partition lane ON lane.id = place.partition_id
          JOIN queen_queue queue ON queue.id = lane.queue_id
          LEFT JOIN queen_group registered
                 ON registered.queue_id = lane.queue_id
                AND registered.consumer_group = place.consumer_group
         WHERE place.partition_id = v_unit.lane_id
           AND place.consumer_group = v_unit.consumer_group;
        IF NOT FOUND THEN
            RETURN QUERY SELECT no, 'unknown', false, false, NULL::bigint, v_unit.queue_id,
                                v_unit.lane_id
                           FROM unnest(v_unit.nos) AS no;
            CONTINUE;
        END IF;
        v_now := clock_timestamp();

        -- Which lease do these acks stand on?
        v_lease := v_unit.lease_id;
        v_verdict := NULL;
        IF v_lease IS NULL AND p_mentions_lease THEN
            IF v_place.lease_expires_at > v_now AND v_place.lease_id = ANY (p_required) THEN
                v_lease := v_place.lease_id;
            ELSE
                v_verdict := 'rejected';
            END IF;
        ELSIF v_lease IS NOT NULL
          AND NOT coalesce(v_lease = v_place.lease_id AND v_place.lease_expires_at > v_now, false)
          AND v_lease IS DISTINCT FROM v_place.last_lease_id THEN
            v_verdict := 'lease';
        ELSIF v_lease IS NULL AND v_place.require_lease THEN
            v_verdict := 'leaseless';
        END IF;
        IF v_verdict IS NOT NULL THEN
            RETURN QUERY SELECT no, v_verdict, false, false, NULL::bigint, v_unit.queue_id,
                                v_unit.lane_id
                           FROM unnest(v_unit.nos) AS no;
            CONTINUE;
        END IF;

        IF v_lease IS NOT NULL AND v_lease = v_place.lease_id
           AND v_place.lease_expires_at > v_now THEN
            v_offsets := queen_transaction_resolve_v1(
                v_unit.lane_id, v_unit.transactions, v_place.committed,
                v_place.batch_start, v_place.batch_end);
        ELSE
            v_offsets := queen_transaction_resolve_v1(
                v_unit.lane_id, v_unit.transactions, v_place.committed, NULL, NULL);
        END IF;
        IF v_lease IS NOT NULL AND NOT coalesce(v_lease = v_place.lease_id
                                                AND v_place.lease_expires_at > v_now, false) THEN
            -- A completed lease: it may repeat what is done, and nothing else.
            RETURN QUERY
            SELECT asked.no,
                   CASE WHEN asked.message_offset IS NULL
                          OR asked.message_offset > v_place.committed THEN 'lease'
                        WHEN asked.action = 0 THEN 'noop'
                        ELSE 'already' END,
                   false, false, NULL::bigint, v_unit.queue_id, v_unit.lane_id
              FROM unnest(v_unit.nos, v_offsets, v_unit.actions)
                   AS asked(no, message_offset, action);
            CONTINUE;
        END IF;

        SELECT min(asked.message_offset) FILTER (WHERE asked.action > 0)
          INTO v_low
          FROM unnest(v_offsets, v_unit.actions) AS asked(message_offset, action)
         WHERE asked.message_offset > v_place.committed;
        SELECT max(asked.action) FILTER (WHERE asked.message_offset = v_low),
               max(asked.message_offset) FILTER (
                   WHERE asked.action = 0 AND (v_low IS NULL OR asked.message_offset < v_low))
          INTO v_action, v_high
          FROM unnest(v_offsets, v_unit.actions) AS asked(message_offset, action)
         WHERE asked.message_offset > v_place.committed;

        v_new := coalesce(v_high, v_place.committed);
        v_charge := NULL;
        v_exhausted := false;
        v_buried := false;
        IF v_action = 2 THEN
            v_charge := CASE WHEN v_place.retry_offset = v_low THEN v_place.retry_count ELSE 0 END + 1;
            v_exhausted := v_charge > v_place.retry_limit;
        ELSIF v_action = 3 THEN
            v_exhausted := true;
        END IF;
        IF v_exhausted THEN
            IF v_action = 3 OR v_place.keeps_dead_letters THEN
                v_buried := queen_dead_letter_add_v1(
                    v_unit.lane_id, v_unit.consumer_group, v_low,
                    coalesce((SELECT p_errors[asked.no]
                                FROM unnest(v_unit.nos, v_offsets, v_unit.actions)
                                     AS asked(no, message_offset, action)
                               WHERE asked.message_offset = v_low AND asked.action = v_action
                               ORDER BY asked.no LIMIT 1), ''),
                    coalesce(v_charge - 1,
                             CASE WHEN v_place.retry_offset = v_low THEN v_place.retry_count
                                  ELSE 0 END));
            END IF;
            v_new := v_low;
        END IF;

        v_complete := coalesce(v_new >= v_place.batch_end, false);
        v_released := v_place.lease_id IS NOT NULL AND (v_low IS NOT NULL OR v_complete);
        IF v_new > v_place.committed OR v_low IS NOT NULL THEN
            UPDATE queen_cursor place
               SET committed = v_new,
                   total_consumed = place.total_consumed + greatest(
                       v_new - greatest(v_place.committed, v_place.log_start - 1), 0),
                   lease_id = CASE WHEN v_released THEN NULL ELSE place.lease_id END,
                   lease_expires_at = CASE WHEN v_released THEN NULL
                                           ELSE place.lease_expires_at END,
                   last_lease_id = CASE WHEN v_released AND v_complete THEN place.lease_id
                                        ELSE place.last_lease_id END,
                   batch_start = CASE WHEN v_released THEN NULL ELSE place.batch_start END,
                   batch_end = CASE WHEN v_released THEN NULL ELSE place.batch_end END,
                   retry_offset = CASE WHEN v_complete OR v_exhausted THEN NULL
                                       WHEN v_charge IS NOT NULL THEN v_low
                                       WHEN place.retry_offset > v_new THEN place.retry_offset END,
                   retry_count = CASE WHEN v_complete OR v_exhausted THEN 0
                                      WHEN v_charge IS NOT NULL THEN v_charge
                                      WHEN place.retry_offset > v_new THEN place.retry_count
                                      ELSE 0 END,
                   -- What is to be delivered again waits where the queue enforces retryDelay.
                   retry_at = CASE WHEN v_low IS NOT NULL AND NOT v_exhausted
                                   THEN v_now + v_place.retry_delay END,
                   -- The deliveries of a batch survive a partial ack and a nack: they move
                   -- with its start. They begin anew when it is complete or cut short.
                   attempt_offset = CASE WHEN v_complete OR v_exhausted THEN NULL
                                         ELSE greatest(place.attempt_offset, v_new + 1) END,
                   attempt_count = CASE WHEN v_complete OR v_exhausted THEN 0
                                        ELSE place.attempt_count END,
                   expiry_count = CASE WHEN v_new > v_place.committed THEN 0
                                       ELSE place.expiry_count END,
                   solo_until = CASE WHEN place.solo_until > v_new THEN place.solo_until END
             WHERE place.partition_id = v_unit.lane_id
               AND place.consumer_group = v_unit.consumer_group;
        END IF;
        IF v_low IS NOT NULL THEN
            v_woken_q := v_woken_q || v_unit.queue_id;
            v_woken_g := v_woken_g || v_unit.consumer_group;
        END IF;

        RETURN QUERY
        SELECT asked.no,
               CASE WHEN asked.message_offset IS NULL THEN 'unresolvable'
                    WHEN asked.message_offset > v_place.committed THEN 'done'
                    WHEN asked.action = 0 THEN 'noop'
                    ELSE 'already' END,
               v_released AND asked.message_offset > v_place.committed,
               v_buried AND asked.message_offset = v_low AND asked.action = v_action,
               CASE WHEN v_place.conflation AND asked.message_offset > v_place.committed
                    THEN CASE WHEN asked.message_offset <= v_new
                              THEN greatest(asked.message_offset - 1 - greatest(
                                       v_place.committed, v_place.log_start - 1), 0)
                              ELSE 0 END
               END,
               v_unit.queue_id, v_unit.lane_id
          FROM unnest(v_unit.nos, v_offsets, v_unit.actions) AS asked(no, message_offset, action);
    END LOOP;

    IF cardinality(v_woken_q) > 0 THEN
        INSERT INTO queen_wake (queue_id, consumer_group, version)
        SELECT DISTINCT woken.queue_id, woken.consumer_group COLLATE "C", 1
          FROM unnest(v_woken_q, v_woken_g) AS woken(queue_id, consumer_group)
         ORDER BY 1, 2
        ON CONFLICT (queue_id, consumer_group) DO UPDATE SET version = queen_wake.version + 1;
    END IF;
END;
$$;
