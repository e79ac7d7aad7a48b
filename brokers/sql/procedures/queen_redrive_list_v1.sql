-- queen_redrive_list_v1: a page of a tenant's redrives, newest first, or one of them.
--
-- Called by  brokers/store/redrive_calls.py, redrive_list()
-- Reads      queen_redrive
-- Locks      nothing
-- Cost       the newest rows up to the end of the page.
-- Answers    rows of queen_redrive, those that were made before (p_at, p_before) if that is given.

CREATE OR REPLACE FUNCTION queen_redrive_list_v1(
    p_tenant_id uuid,
    p_id        uuid,
    p_state     text,
    p_limit     integer,
    p_offset    bigint,
    p_at        timestamptz,
    p_before    uuid
)
RETURNS SETOF queen_redrive
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
BEGIN
    IF p_id IS NOT NULL THEN
        RETURN QUERY
        SELECT redrive.* FROM queen_redrive redrive
         WHERE redrive.id = p_id AND redrive.tenant_id = p_tenant_id;
    ELSE
        RETURN QUERY
        SELECT redrive.* FROM queen_redrive redrive
         WHERE redrive.tenant_id = p_tenant_id
           AND (p_state IS NULL OR redrive.state = p_state)
           AND (redrive.created_at, redrive.id)
               < (coalesce(p_at, 'infinity'),
                  coalesce(p_before, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
         ORDER BY redrive.created_at DESC, redrive.id DESC
         LIMIT p_limit OFFSET p_offset;
    END IF;
END;
$$;
