-- Drops a partition, and keeps some of its messages: see the function `drop_partition`.
-- $1 partition bigint
-- $2 kept bigint[]: numbers
-- Lock order: oncebox_message and oncebox_outcome exclusively, after a wait of at most `patience`.
SELECT oncebox_drop_partition($1, $2)
