-- Creates a partition: see the function `make_partition`.
-- $1 partition bigint
SELECT oncebox_make_partition($1)
