-- queen_queue_encrypted_v1: which of these queues of a tenant encrypt their messages.
--
-- Called by  brokers/store/spool_calls.py, queue_encrypted()
-- Reads      queen_queue
-- Locks      nothing
-- Cost       a probe a name
-- Answers    one row a queue that is there and encrypts

CREATE OR REPLACE FUNCTION queen_queue_encrypted_v1(p_tenant_id uuid, p_names text[])
RETURNS TABLE (name text)
LANGUAGE sql
STABLE
SET enable_seqscan = off
AS $$
    SELECT queue.name
      FROM unnest(p_names) AS asked(name)
     CROSS JOIN LATERAL (
        SELECT held.name, held.encryption_enabled
          FROM queen_queue held
         WHERE held.tenant_id = p_tenant_id AND held.name = asked.name
         LIMIT 1
     ) AS queue
     WHERE queue.encryption_enabled
$$;
