-- What waits for each handler of an inbox: the key, how many entries are pending and how many poisoned, both counted up to a
-- limit, and for how long the first has been due. Goes a step or a limited number of rows into an index, for each lane.
-- $1 now or nothing, $2 inbox, $3 all lanes, $4 up to how many are counted.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), poisoned AS MATERIALIZED (
    -- Beyond the limit, a person has enough to look at.
    SELECT p.handler, count(*) AS count FROM (SELECT handler FROM @poisoned LIMIT $4) p GROUP BY p.handler
)
SELECT h.key, least(e.count + l.count + s.count, $4), coalesce(p.count, 0), m.now - first.due
FROM moment m, @handler h LEFT JOIN poisoned p ON p.handler = h.id CROSS JOIN LATERAL (
    SELECT count(*) FROM (
        SELECT 1 FROM @entry e WHERE e.lane = ANY ($3::int2[]) AND e.handler = h.id AND e.token IS NULL LIMIT $4
    ) e
) e CROSS JOIN LATERAL (
    SELECT count(*) FROM (
        SELECT 1 FROM @later e WHERE e.lane = ANY ($3::int2[]) AND e.handler = h.id AND e.crashes = 0 LIMIT $4
    ) l
) l CROSS JOIN LATERAL (
    SELECT count(*) FROM (
        SELECT 1 FROM @later e WHERE e.lane = ANY ($3::int2[]) AND e.handler = h.id AND e.crashes > 0 LIMIT $4
    ) s
) s CROSS JOIN LATERAL (
    -- The first of each lane, wherever it waits.
    SELECT min(least(e.due, l.due, s.due)) AS due
    FROM unnest($3::int2[]) AS lane (lane)
    LEFT JOIN LATERAL (
        SELECT e.due FROM @entry e WHERE e.lane = lane.lane AND e.handler = h.id AND e.token IS NULL ORDER BY e.seq LIMIT 1
    ) e ON true
    LEFT JOIN LATERAL (
        SELECT e.due FROM @later e WHERE e.lane = lane.lane AND e.handler = h.id AND e.crashes = 0 AND e.due <= m.now
          -- As the index of those that do not wait behind another one says it.
          AND e.due <> 9223372036854775807
        ORDER BY e.due, e.seq LIMIT 1
    ) l ON true
    LEFT JOIN LATERAL (
        SELECT e.due FROM @later e WHERE e.lane = lane.lane AND e.handler = h.id AND e.crashes > 0 AND e.due <= m.now
        ORDER BY e.due, e.seq LIMIT 1
    ) s ON true
) first
WHERE h.inbox = $2 AND (e.count + l.count + s.count > 0 OR p.count > 0)
ORDER BY h.key COLLATE "C"
