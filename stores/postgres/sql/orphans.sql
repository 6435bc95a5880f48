-- name: orphans
-- Lists handlers without a known key whose entries waited too long and are not leased: key, number of waiting entries,
-- and due time of the first.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 keys text[]: that are known
-- $4 grace bigint in ms
-- $5 limit bigint: of handlers
-- $6 lanes smallint[]: all of them
-- $7 limit bigint: of each count
-- Index: primary key of oncebox_entry, oncebox_scheduled_due, oncebox_scheduled_suspect; oncebox_claim is scanned.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), held AS MATERIALIZED (
    -- A process that claimed entries of a handler within a lease knows the handler, even if they are settled by now. A renewed
    -- lease is longer than the claim's.
    SELECT DISTINCT l.handler
    FROM moment m, oncebox_claim c CROSS JOIN LATERAL unnest(c.lanes, c.handlers, c.firsts, c.lasts) AS l (lane, handler, first, last)
    WHERE c.until >= m.now OR EXISTS (
        SELECT 1 FROM oncebox_entry e
        WHERE e.lane = l.lane AND e.handler = l.handler AND e.seq BETWEEN l.first AND l.last AND e.claim_id = c.claim_id
          AND e.lease_until >= m.now
    )
), missed AS MATERIALIZED (
    SELECT h.id, h.key, first.due
    FROM moment m, oncebox_handler h CROSS JOIN LATERAL (
        -- The first entry of each lane, in any table.
        SELECT min(least(e.due, l.due, s.due)) AS due
        FROM unnest($6::int2[]) AS lane (lane)
        LEFT JOIN LATERAL (
            SELECT e.due FROM oncebox_entry e WHERE e.lane = lane.lane AND e.handler = h.id ORDER BY e.seq LIMIT 1
        ) e ON true
        LEFT JOIN LATERAL (
            SELECT e.due FROM oncebox_scheduled e WHERE e.lane = lane.lane AND e.handler = h.id AND e.crashes = 0
              AND e.due <> 9223372036854775807
            ORDER BY e.due, e.seq LIMIT 1
        ) l ON true
        LEFT JOIN LATERAL (
            SELECT e.due FROM oncebox_scheduled e WHERE e.lane = lane.lane AND e.handler = h.id AND e.crashes > 0
            ORDER BY e.due, e.seq LIMIT 1
        ) s ON true
    ) first
    WHERE h.inbox = $2 AND h.id NOT IN (SELECT k.handler FROM oncebox_handler_key k WHERE k.inbox = $2 AND k.key = ANY ($3::text[])) AND h.id NOT IN (SELECT handler FROM held)
      AND first.due <= m.now - $4
    ORDER BY first.due, h.key COLLATE "C" LIMIT $5
)
SELECT o.key, least(e.count + l.count + w.count + s.count, $7), o.due
FROM missed o CROSS JOIN LATERAL (
    SELECT count(*) FROM (SELECT 1 FROM oncebox_entry e WHERE e.lane = ANY ($6::int2[]) AND e.handler = o.id LIMIT $7) e
) e CROSS JOIN LATERAL (
    SELECT count(*) FROM (
        SELECT 1 FROM oncebox_scheduled e
        WHERE e.lane = ANY ($6::int2[]) AND e.handler = o.id AND e.crashes = 0 AND e.due <> 9223372036854775807 LIMIT $7
    ) l
) l CROSS JOIN LATERAL (
    -- Entries that wait for an earlier one with the same order key.
    SELECT count(*) FROM (
        SELECT 1 FROM oncebox_scheduled e
        WHERE e.lane = ANY ($6::int2[]) AND e.handler = o.id AND e.order_key IS NOT NULL AND e.crashes = 0
          AND e.due = 9223372036854775807 LIMIT $7
    ) w
) w CROSS JOIN LATERAL (
    SELECT count(*) FROM (
        SELECT 1 FROM oncebox_scheduled e WHERE e.lane = ANY ($6::int2[]) AND e.handler = o.id AND e.crashes > 0 LIMIT $7
    ) s
) s
ORDER BY o.due, o.key COLLATE "C";
