-- Reads the leases of a message's entries. The first row is the current time.
-- $1 seq bigint
-- $2 handlers smallint[]: all of them
-- $3 now bigint or NULL (server clock)
-- Index: primary key of oncebox_entry.
SELECT NULL::text, NULL::uuid, coalesce($3, (extract(epoch FROM statement_timestamp()) * 1000)::bigint), NULL::bigint
UNION ALL
SELECT h.key, e.claim_id, e.claimed_at, e.lease_until FROM oncebox_entry e JOIN oncebox_handler h ON h.id = e.handler
WHERE e.lane = $1 & 63 AND e.handler = ANY ($2::int2[]) AND e.seq = $1 AND e.token IS NOT NULL
