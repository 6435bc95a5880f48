-- What waits for each handler of an inbox: the key, how many entries are pending and how many poisoned, both counted up to a
-- limit, and for how long the first has been due; then how many order keys a poisoned entry holds back, how many entries are behind
-- those, and how long ago the oldest of these came. Goes a step or a limited number of rows into an index, for each lane and for each
-- order key that is held back.
-- $1 now or nothing, $2 inbox, $3 all lanes, $4 up to how many are counted.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), poisoned AS MATERIALIZED (
    -- Beyond the limit, a person has enough to look at. Lines that an operator holds back have a row with a smaller number.
    SELECT p.handler, count(*) AS count
    FROM (SELECT handler FROM oncebox_poisoned WHERE lane = ANY ($3::int2[]) AND seq >= 68719476736 LIMIT $4) p GROUP BY p.handler
), head AS MATERIALIZED (
    -- The first of each line that holds it back.
    SELECT DISTINCT ON (p.lane, p.handler, p.order_key) p.lane, p.handler, p.order_key, p.seq
    FROM oncebox_poisoned p WHERE p.lane = ANY ($3::int2[]) AND p.in_line IN ('blocks', 'parks') AND p.seq >= 68719476736
    ORDER BY p.lane, p.handler, p.order_key, p.seq LIMIT $4
), blocked AS MATERIALIZED (
    SELECT d.handler, count(*) AS keys, min(least(w.seq, k.seq)) AS first
    FROM head d LEFT JOIN LATERAL (
        SELECT o.seq FROM oncebox_scheduled o
        WHERE o.lane = d.lane AND o.handler = d.handler AND o.order_key = d.order_key AND o.seq > d.seq ORDER BY o.seq LIMIT 1
    ) w ON true LEFT JOIN LATERAL (
        SELECT o.seq FROM oncebox_poisoned o
        WHERE o.lane = d.lane AND o.handler = d.handler AND o.order_key = d.order_key AND o.in_line = 'parked' AND o.seq > d.seq
        ORDER BY o.seq LIMIT 1
    ) k ON true
    GROUP BY d.handler
)
SELECT h.key, least(e.count + l.count + s.count, $4), coalesce(p.count, 0), m.now - first.due, coalesce(b.keys, 0),
       coalesce(behind.count, 0), m.now - (SELECT o.received_at FROM oncebox_proof o WHERE o.seq = b.first)
FROM moment m, oncebox_handler h LEFT JOIN poisoned p ON p.handler = h.id LEFT JOIN blocked b ON b.handler = h.id CROSS JOIN LATERAL (
    SELECT count(*) FROM (
        SELECT 1 FROM oncebox_entry e WHERE e.lane = ANY ($3::int2[]) AND e.handler = h.id AND e.token IS NULL LIMIT $4
    ) e
) e CROSS JOIN LATERAL (
    SELECT count(*) FROM (
        SELECT 1 FROM oncebox_scheduled e WHERE e.lane = ANY ($3::int2[]) AND e.handler = h.id AND e.crashes = 0 LIMIT $4
    ) l
) l CROSS JOIN LATERAL (
    SELECT count(*) FROM (
        SELECT 1 FROM oncebox_scheduled e WHERE e.lane = ANY ($3::int2[]) AND e.handler = h.id AND e.crashes > 0 LIMIT $4
    ) s
) s CROSS JOIN LATERAL (
    -- The first of each lane, wherever it waits.
    SELECT min(least(e.due, l.due, s.due)) AS due
    FROM unnest($3::int2[]) AS lane (lane)
    LEFT JOIN LATERAL (
        SELECT e.due FROM oncebox_entry e WHERE e.lane = lane.lane AND e.handler = h.id AND e.token IS NULL ORDER BY e.seq LIMIT 1
    ) e ON true
    LEFT JOIN LATERAL (
        SELECT e.due FROM oncebox_scheduled e WHERE e.lane = lane.lane AND e.handler = h.id AND e.crashes = 0 AND e.due <= m.now
          -- As the index of those that do not wait behind another one says it.
          AND e.due <> 9223372036854775807
        ORDER BY e.due, e.seq LIMIT 1
    ) l ON true
    LEFT JOIN LATERAL (
        SELECT e.due FROM oncebox_scheduled e WHERE e.lane = lane.lane AND e.handler = h.id AND e.crashes > 0 AND e.due <= m.now
        ORDER BY e.due, e.seq LIMIT 1
    ) s ON true
) first LEFT JOIN LATERAL (
    SELECT count(*) FROM (
        SELECT 1 FROM head d CROSS JOIN LATERAL (
            SELECT 1 FROM oncebox_scheduled o
            WHERE o.lane = d.lane AND o.handler = d.handler AND o.order_key = d.order_key AND o.seq > d.seq
            UNION ALL
            SELECT 1 FROM oncebox_poisoned o
            WHERE o.lane = d.lane AND o.handler = d.handler AND o.order_key = d.order_key AND o.in_line = 'parked' AND o.seq > d.seq
        ) w WHERE d.handler = h.id LIMIT $4
    ) w
) behind ON b.keys > 0
WHERE h.inbox = $2 AND (e.count + l.count + s.count > 0 OR p.count > 0 OR b.keys > 0)
ORDER BY h.key COLLATE "C"
