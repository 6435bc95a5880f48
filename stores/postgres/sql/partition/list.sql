-- Lists partitions that get no more messages.
-- $1 partition bigint: of new messages
-- Index: primary key of oncebox_partition.
SELECT id, ended_at, payload FROM oncebox_partition WHERE id < $1 AND ended_at IS NOT NULL ORDER BY id
