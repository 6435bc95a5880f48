-- Lets one process at a time maintain partitions. Returns false if another one does.
-- $1 lock bigint: number
-- Lock order: the advisory lock, without waiting.
SELECT pg_try_advisory_xact_lock($1)
