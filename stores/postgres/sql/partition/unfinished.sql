-- Messages of a partition that are still worked on, or wait for a person; a limited number. $1 all lanes, $2 all handlers, $3 first
-- and $4 last number, $5 how many.
SELECT DISTINCT seq FROM (
    SELECT e.seq FROM oncebox_entry e WHERE e.lane = ANY ($1::int2[]) AND e.handler = ANY ($2::int2[]) AND e.seq BETWEEN $3 AND $4
    UNION ALL SELECT e.seq FROM oncebox_scheduled e WHERE e.lane = ANY ($1::int2[]) AND e.seq BETWEEN $3 AND $4
    UNION ALL SELECT e.seq FROM oncebox_poisoned e WHERE e.lane = ANY ($1::int2[]) AND e.seq BETWEEN $3 AND $4
) e LIMIT $5
