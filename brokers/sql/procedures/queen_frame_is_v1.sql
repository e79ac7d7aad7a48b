-- queen_frame_is_v1: whether a frame carries this transactionId (its canonical literal).
--
-- Called by  the procedures that confirm a hash hit against the whole id.
-- Reads      nothing; null when the frame is not retained.
--
-- A frame starts with {"id":"<36>","transactionId": which is 61 characters.

CREATE OR REPLACE FUNCTION queen_frame_is_v1(p_frame text, p_transaction text)
RETURNS boolean
LANGUAGE sql
IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT starts_with(substr(p_frame, 62), p_transaction || ',"traceId":')
$$;
