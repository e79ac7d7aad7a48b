-- queen_kv_number_v1, queen_kv_verdict_v1: why a key/value write does not apply, if so.
--
-- Called by  queen_kv_apply_v1, for a row that it has locked
-- Reads      nothing: the entry is handed in
-- Locks      none
-- Cost       an expression; `number` casts one JSON number
-- Answers    null: it applies; else exists | absent | version | limit | type
--
-- p_op: 3 put, 4 delete, 5 incr. p_version is 0 when there is no live entry, and p_value is
-- null then. A number is counted with exactly, as PostgreSQL's numeric; one of more than
-- 4096 characters or with an exponent of five digits cannot be counted with, and is over the
-- limit, as a result that long is. `type` is what is no number at all: a JSON value that
-- begins otherwise than with a digit or a minus.

CREATE OR REPLACE FUNCTION queen_kv_number_v1(p_value bytea)
RETURNS numeric
LANGUAGE sql
STABLE
AS $$
    SELECT CASE
        WHEN octet_length(p_value) <= 4096
         AND convert_from(p_value, 'UTF8')
             ~ '^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?0*[0-9]{1,4})?$'
        THEN convert_from(p_value, 'UTF8')::numeric
    END
$$;

CREATE OR REPLACE FUNCTION queen_kv_verdict_v1(
    p_op smallint, p_expect bigint, p_delta numeric, p_floor numeric, p_ceiling numeric,
    p_version bigint, p_value bytea
)
RETURNS text
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
    v_sum numeric;
BEGIN
    IF p_op = 5 THEN
        v_sum := CASE WHEN p_version = 0 THEN 0 ELSE queen_kv_number_v1(p_value) END + p_delta;
        RETURN CASE
            WHEN v_sum IS NULL THEN CASE
                WHEN chr(get_byte(p_value, 0)) ~ '[-0-9]' THEN 'limit' ELSE 'type' END
            WHEN p_delta < p_floor OR p_delta > p_ceiling
              OR v_sum < p_floor OR v_sum > p_ceiling
              OR length(trim_scale(v_sum)::text) > 4096 THEN 'limit'
        END;
    END IF;
    RETURN CASE
        WHEN p_expect IS NULL THEN CASE WHEN p_op = 4 AND p_version = 0 THEN 'absent' END
        WHEN p_expect = 0 AND p_op = 3 THEN CASE WHEN p_version > 0 THEN 'exists' END
        WHEN p_version = 0 THEN 'absent'
        WHEN p_version <> p_expect THEN 'version'
    END;
END;
$$;
