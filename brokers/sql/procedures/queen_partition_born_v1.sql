-- queen_partition_born_v1: add to the history that a queue has got partitions.
--
-- Called by  queen_statistics_step_v1
-- Writes     queen_queue_counter
-- Locks      rows of its own there: no broker has an empty id.
-- Cost       one row for each width of bucket.
-- Answers    nothing

CREATE OR REPLACE FUNCTION queen_partition_born_v1(p_queue_id bigint, p_born bigint)
RETURNS void
LANGUAGE sql
SET enable_seqscan = off
AS $$
    INSERT INTO queen_queue_counter AS kept (span, bucket, queue_id, server_id,
                                             partitions_created)
    SELECT width.span, queen_bucket_v1(clock_timestamp(), width.span), p_queue_id, '', p_born
      FROM unnest(ARRAY[1, 15, 60, 360]::smallint[]) AS width(span)
    ON CONFLICT (span, bucket, queue_id, server_id) DO UPDATE
       SET partitions_created = kept.partitions_created + excluded.partitions_created
$$;
