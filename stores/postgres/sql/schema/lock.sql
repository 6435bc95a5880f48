-- Lets one process at a time migrate.
-- $1 lock bigint: number
-- Lock order: the advisory lock, until the transaction ends.
SELECT pg_advisory_xact_lock($1)
