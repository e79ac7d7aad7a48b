-- queen_message_id_at_v1: a message id for an instant: a UUIDv7 that sorts by it.
--
-- Called by  queen_timer_apply_v1
-- Answers    48 bits of milliseconds, then (RFC 9562, method 3) 12 bits of the microseconds
--            within one, then p_no, then chance.
--
-- Ids of different microseconds sort by time and those of one call by p_no, so the timers of
-- a partition that fire together have ids that rise in deliver_at order.

CREATE OR REPLACE FUNCTION queen_message_id_at_v1(p_at timestamptz, p_no integer)
RETURNS uuid
LANGUAGE sql
VOLATILE
AS $$
    SELECT (substr(time.ms, 1, 8) || '-' || substr(time.ms, 9) || '-7'
            || lpad(to_hex(time.us % 1000 * 4), 3, '0') || '-'
            || to_hex(32768 + p_no % 16384)
            || substr(gen_random_uuid()::text, 24))::uuid
      FROM (
        SELECT lpad(to_hex(given.us / 1000), 12, '0') AS ms, given.us
          FROM (SELECT (extract(epoch FROM p_at) * 1000000)::bigint AS us) AS given
      ) AS time
$$;
