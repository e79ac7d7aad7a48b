-- queen_transaction_resolve_v1: the offsets that transactionIds of one partition mean.
--
-- Called by  queen_message_ack_v1
-- Reads      queen_segment, queen_txn
-- Locks      nothing: the caller holds the group's cursor.
-- Cost       under a lease one pass over its span; else (and for what the span does not
--            hold) one probe an id and slot, and one slice a hit.
-- Answers    an offset or null for each id, in the order asked.
--
-- Under a lease (p_first and p_last given) the span itself is searched, so the age of a
-- message does not matter. An id that stands several times means its lowest offset that is
-- not yet completed, and its k-th mention in the call the k-th such offset; mentions beyond
-- the last of them mean that one. What is not open may still be found at or below the cursor.

CREATE OR REPLACE FUNCTION queen_transaction_resolve_v1(
    p_partition_id bigint,
    p_transactions text[],
    p_committed    bigint,
    p_first        bigint,
    p_last         bigint
)
RETURNS bigint[]
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_nestloop = off
AS $$
#variable_conflict use_column
DECLARE
    v_offsets bigint[];
BEGIN
    IF p_first IS NOT NULL THEN
        WITH asked AS (
            SELECT given.transaction, given.no,
                   row_number() OVER (PARTITION BY given.transaction ORDER BY given.no) AS mention
              FROM unnest(p_transactions) WITH ORDINALITY AS given(transaction, no)
        ), spanned AS MATERIALIZED (
            SELECT span.message_offset, span.message_offset > p_committed AS open,
                   substr(span.frame, 62, strpos(span.frame, ',"traceId":') - 62) AS transaction
              FROM queen_span_v1(p_partition_id, least(p_first, p_committed + 1), p_last) AS span
        ), ranked AS MATERIALIZED (
            SELECT spanned.*,
                   row_number() OVER (PARTITION BY spanned.transaction
                                      ORDER BY spanned.open DESC, spanned.message_offset) AS nth,
                   greatest(count(*) FILTER (WHERE spanned.open)
                                OVER (PARTITION BY spanned.transaction), 1) AS standing
              FROM spanned
        )
        SELECT array_agg(meant.message_offset ORDER BY asked.no)
          INTO v_offsets
          FROM asked
          LEFT JOIN ranked AS meant
                 ON meant.transaction = asked.transaction
                AND meant.nth = least(asked.mention, meant.standing);
        IF array_position(v_offsets, NULL) IS NULL THEN
            RETURN v_offsets;
        END IF;
    END IF;

    -- Open ones first and from below: the k-th mention is the k-th of them, or the last;
    -- without any it is the newest that is done.
    RETURN ARRAY(
        SELECT coalesce(asked.known, hit.offsets[least(
                   asked.mention,
                   greatest((SELECT count(*) FROM unnest(hit.offsets) AS one
                              WHERE one > p_committed), 1))])
          FROM (
            SELECT given.transaction, given.no, given.known,
                   row_number() OVER (PARTITION BY given.transaction ORDER BY given.no) AS mention
              FROM unnest(p_transactions, v_offsets)
                   WITH ORDINALITY AS given(transaction, known, no)
          ) AS asked
         CROSS JOIN LATERAL (
            SELECT ARRAY(
                SELECT known.message_offset
                  FROM queen_txn known
                 CROSS JOIN LATERAL queen_frame_get_v1(p_partition_id, known.message_offset)
                         AS frame(text)
                 WHERE asked.known IS NULL
                   AND known.partition_id = p_partition_id
                   AND known.hash = queen_txn_hash_v1(asked.transaction)
                   AND (frame.text IS NULL OR queen_frame_is_v1(frame.text, asked.transaction))
                   -- Under a lease only what lies at or below the cursor counts from here, and
                   -- what retention took out of the leased span since it was handed out.
                   AND (p_first IS NULL OR known.message_offset <= p_committed
                        OR frame.text IS NULL AND known.message_offset <= p_last)
                 ORDER BY known.message_offset <= p_committed,
                          abs(known.message_offset - p_committed - 1)
            ) AS offsets
         ) AS hit
         ORDER BY asked.no);
END;
$$;
