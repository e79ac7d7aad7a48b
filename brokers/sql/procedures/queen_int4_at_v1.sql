-- queen_int4_at_v1: the n-th (from 0) four-byte big-endian number of a bytea.
--
-- Called by  the procedures that slice segments by their `ends`.
-- Reads      nothing
-- Cost       one slice of the value: `ends` is stored out of line and uncompressed.

CREATE OR REPLACE FUNCTION queen_int4_at_v1(p_numbers bytea, p_position bigint)
RETURNS bigint
LANGUAGE sql
IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT ('x' || encode(substr(p_numbers, (p_position * 4 + 1)::integer, 4), 'hex'))::bit(32)::bigint
$$;
