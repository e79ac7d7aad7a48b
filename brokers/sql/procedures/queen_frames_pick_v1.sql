-- queen_frames_pick_v1: a group of messages without some of them.
--
-- Called by  queen_spool_replay_v1, for a group with duplicates
-- Reads      nothing
-- Cost       one copy of what is kept.
-- Answers    the columns of a group as queen_message_push_v1 takes them, for the messages at
--            the positions p_kept (from 1, rising, at least one).

CREATE OR REPLACE FUNCTION queen_frames_pick_v1(
    p_frames       bytea,
    p_ends         bytea,
    p_transactions text,
    p_flags        bytea,
    p_kept         integer[],
    OUT frames       bytea,
    OUT ends         bytea,
    OUT transactions text,
    OUT flags        bytea
)
LANGUAGE sql
IMMUTABLE
AS $$
    SELECT string_agg(kept.frame, '\x1e'::bytea ORDER BY kept.position),
           string_agg(int4send(kept.behind), ''::bytea ORDER BY kept.position),
           string_agg(kept.transaction, chr(30) ORDER BY kept.position),
           string_agg(substr(p_flags, kept.position, 1), ''::bytea ORDER BY kept.position)
      FROM (
        SELECT cut.position, cut.transaction,
               substr(p_frames, cut.first + 1, cut.behind - cut.first) AS frame,
               (sum(cut.behind - cut.first) OVER (ORDER BY cut.position)
                + row_number() OVER (ORDER BY cut.position) - 1)::integer AS behind
          FROM (
            SELECT message.position::integer AS position, message.transaction,
                   CASE WHEN message.position = 1 THEN 0
                        ELSE queen_int4_at_v1(p_ends, message.position - 2) + 1
                   END::integer AS first,
                   queen_int4_at_v1(p_ends, message.position - 1)::integer AS behind
              FROM string_to_table(p_transactions, chr(30))
                   WITH ORDINALITY AS message(transaction, position)
             WHERE message.position = ANY (p_kept)
          ) AS cut
      ) AS kept
$$;
