-- queen_dead_letter_groups_v1: which groups have dead letters of a partition.
--
-- Called by  queen_message_list_v1, queen_message_get_v1
-- Reads      queen_dead_letter
-- Locks      nothing
-- Cost       one index probe a group, however many letters there are.
-- Answers    their names; empty for none.

CREATE OR REPLACE FUNCTION queen_dead_letter_groups_v1(p_partition_id bigint)
RETURNS text[]
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_groups text[] := '{}';
    v_group  text;
BEGIN
    SELECT consumer_group INTO v_group
      FROM queen_dead_letter
     WHERE partition_id = p_partition_id
     ORDER BY consumer_group
     LIMIT 1;
    WHILE v_group IS NOT NULL LOOP
        v_groups := v_groups || v_group;
        SELECT min(consumer_group) INTO v_group
          FROM queen_dead_letter
         WHERE partition_id = p_partition_id AND consumer_group > v_group;
    END LOOP;
    RETURN v_groups;
END;
$$;
