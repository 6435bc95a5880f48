-- Drops the messages of a partition, and keeps some: see the function `drop_payload`.
-- $1 partition bigint
-- $2 kept bigint[]: numbers
-- Lock order: oncebox_message exclusively, after a wait of at most `patience`.
SELECT oncebox_drop_payload($1, $2)
