-- queen_audit_end_v1: how it went with what an entry says.
--
-- Called by  brokers/store/audit_calls.py, audit_end()
-- Writes     queen_audit
-- Locks      the entry, which nobody else writes to
-- Cost       one row by its key
-- Answers    nothing. An entry that has its outcome keeps it.

CREATE OR REPLACE FUNCTION queen_audit_end_v1(
    p_id bigint, p_outcome text, p_hits bigint, p_detail text
)
RETURNS void
LANGUAGE sql
AS $$
    UPDATE queen_audit
       SET outcome = p_outcome, hits = p_hits, ended_at = clock_timestamp(),
           detail = concat_ws(E'\n', nullif(detail, ''), nullif(p_detail, ''))
     WHERE id = p_id AND outcome = 'begun'
$$;
