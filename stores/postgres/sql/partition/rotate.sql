-- Sends new messages to the next partition.
-- $1 partition bigint: so far
-- $2 now bigint
-- Lock order: the rows of oncebox_partition and oncebox_meta.
WITH ended AS (
    UPDATE oncebox_partition SET ended_at = $2 WHERE id = $1
)
UPDATE oncebox_meta SET partition_id = $1 + 1, counted = (SELECT last_value FROM oncebox_counter), started_at = $2 WHERE partition_id = $1
