-- Takes the locks of order queues. Every change of a queue takes its lock first.
-- $1 class integer
-- $2 number integer[]: of each lock, in ascending order
-- Lock order: advisory locks in the order of $2, which all callers share, until the transaction ends.
SELECT pg_advisory_xact_lock($1, bucket) FROM unnest($2::int4[]) AS bucket
