-- Partitions that nothing is added to any more. $1 the partition new messages go to.
SELECT id, ended_at, payload FROM oncebox_partition WHERE id < $1 AND ended_at IS NOT NULL ORDER BY id
