-- queen_spool_hold_v1: how much longer than their window transaction rows are needed.
--
-- Called by  queen_txn_slot_clear_v1
-- Reads      queen_spool
-- Locks      nothing
-- Cost       a scan of a handful of rows.
-- Answers    seconds: the age of the oldest record that a spool still holds, 0 when none
--            is being replayed. A mark that has not moved for five minutes belongs to a broker
--            that is gone or cannot go on, and holds nothing up.

CREATE OR REPLACE FUNCTION queen_spool_hold_v1()
RETURNS double precision
LANGUAGE sql
VOLATILE
AS $$
    SELECT greatest(
               coalesce(extract(epoch FROM clock_timestamp() - min(mark.oldest_accepted_at)), 0),
               0)::double precision
      FROM queen_spool mark
     WHERE mark.updated_at > clock_timestamp() - interval '5 minutes'
$$;
