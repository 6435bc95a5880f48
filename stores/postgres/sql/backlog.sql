-- name: backlog
-- Reports the backlog of each handler of an inbox: its key, the pending and poisoned entries (both counted up to a
-- limit), and how long the first has been due. Then: blocked order keys, entries behind them, and the age of the oldest
-- of these. Reads one step or a limited number of rows per lane and per blocked order key.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 lanes smallint[]: all of them
-- $4 limit bigint: of each count
-- Index: primary key of oncebox_entry, all indexes of oncebox_scheduled and oncebox_poisoned, oncebox_proof_seq.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), poisoned AS MATERIALIZED (
    -- Beyond the limit an operator has enough to read. A paused order key has a row with a smaller number.
    SELECT p.handler, count(*) AS count
    FROM (SELECT handler FROM oncebox_poisoned WHERE lane = ANY ($3::int2[]) AND seq >= 68719476736 LIMIT $4) p GROUP BY p.handler
), head AS MATERIALIZED (
    -- The first entry that blocks each order key.
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
    -- The first entry of each lane, in any table.
    SELECT min(least(e.due, l.due, s.due)) AS due
    FROM unnest($3::int2[]) AS lane (lane)
    LEFT JOIN LATERAL (
        SELECT e.due FROM oncebox_entry e WHERE e.lane = lane.lane AND e.handler = h.id AND e.token IS NULL ORDER BY e.seq LIMIT 1
    ) e ON true
    LEFT JOIN LATERAL (
        SELECT e.due FROM oncebox_scheduled e WHERE e.lane = lane.lane AND e.handler = h.id AND e.crashes = 0 AND e.due <= m.now
          -- Same condition as the index.
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
ORDER BY h.key COLLATE "C";
