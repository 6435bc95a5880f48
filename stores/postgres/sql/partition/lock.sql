-- One process at a time looks after partitions; another one need not wait for it.
SELECT pg_try_advisory_xact_lock($1)
