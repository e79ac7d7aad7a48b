-- queen_txn_hash_v1: where a transactionId lies in the transaction index of its partition.
--
-- Called by  queen_message_push_v1, queen_message_push_one_v1, queen_spool_replay_v1,
--            queen_segment_append_distinct_v1,
--            queen_transaction_resolve_v1, queen_message_get_v1, queen_dead_letter_replay_v1
-- Reads      nothing
-- Locks      none
-- Cost       two hashes; inlined into the statement that asks
-- Answers    8 bits by how the id begins, 56 by the whole of it.
--
-- Ids that are born together begin alike: of a UUIDv7 the ten characters behind the quote are its
-- time in steps of four seconds. So what is pushed now lies together, in one of 256 places of the
-- partition's index: it touches few pages, where a hash of the whole id touches a random one for
-- each message, writes each of them into the log whole after a checkpoint, and needs all of the
-- index in memory. More bits would not make it fewer pages, and would tell fewer ids apart: a hit is
-- confirmed against the message, but an original that is no longer retained is known by its
-- hash alone.

CREATE OR REPLACE FUNCTION queen_txn_hash_v1(p_transaction text)
RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT (hashtextextended(left(p_transaction, 11), 0) & -72057594037927936)
         | (hashtextextended(p_transaction, 0) & 72057594037927935)
$$;
