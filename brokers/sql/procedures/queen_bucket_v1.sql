-- queen_bucket_v1: the bucket of so many minutes that an instant lies in, by its beginning.
--
-- Called by  whatever writes or reads history by time
-- Locks      nothing
-- Cost       nothing
-- Answers    an instant: buckets are counted from the beginning of 2000 in UTC.

CREATE OR REPLACE FUNCTION queen_bucket_v1(p_at timestamptz, p_minutes integer)
RETURNS timestamptz
LANGUAGE sql
IMMUTABLE
AS $$
    SELECT date_bin(p_minutes * interval '1 minute', p_at, timestamptz '2000-01-01 00:00:00Z')
$$;
