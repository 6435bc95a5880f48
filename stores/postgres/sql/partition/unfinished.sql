-- Lists messages of a partition with pending, running or poisoned entries.
-- $1 lanes smallint[]: all of them
-- $2 handlers smallint[]: all of them
-- $3 first bigint: number
-- $4 last bigint: number
-- $5 limit bigint
-- Index: primary keys of oncebox_entry, oncebox_scheduled and oncebox_poisoned.
SELECT DISTINCT seq FROM (
    SELECT e.seq FROM oncebox_entry e WHERE e.lane = ANY ($1::int2[]) AND e.handler = ANY ($2::int2[]) AND e.seq BETWEEN $3 AND $4
    UNION ALL SELECT e.seq FROM oncebox_scheduled e WHERE e.lane = ANY ($1::int2[]) AND e.seq BETWEEN $3 AND $4
    UNION ALL SELECT e.seq FROM oncebox_poisoned e WHERE e.lane = ANY ($1::int2[]) AND e.seq BETWEEN $3 AND $4
) e LIMIT $5
