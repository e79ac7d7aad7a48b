-- queen_prefix_end_v1: the text that closes the range of all keys with a prefix from above.
--
-- Called by  queen_kv_prefix_v1, queen_stream_state_get_v1
-- Cost       no table.
-- Answers    the prefix with its last character raised by one, in the order of code points,
--            which is the byte order of UTF-8; what lies above every key for an empty prefix.

CREATE OR REPLACE FUNCTION queen_prefix_end_v1(p_prefix text)
RETURNS text
LANGUAGE plpgsql
IMMUTABLE
AS $$
DECLARE
    v_stem text := p_prefix;
    v_last integer;
BEGIN
    WHILE v_stem <> '' LOOP
        v_last := ascii(right(v_stem, 1));
        v_stem := left(v_stem, -1);
        IF v_last < 1114111 THEN
            RETURN v_stem || chr(CASE WHEN v_last = 55295 THEN 57344 ELSE v_last + 1 END);
        END IF;
    END LOOP;
    -- Above every key: none has so many characters of four bytes.
    RETURN repeat(chr(1114111), 600);
END;
$$;
