-- Whoever changes a line of ordered entries holds its lock. Taken in one order by everybody, so that nobody waits in a ring.
SELECT pg_advisory_xact_lock($1, bucket) FROM unnest($2::int4[]) AS bucket
