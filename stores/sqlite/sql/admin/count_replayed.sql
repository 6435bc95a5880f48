-- Counts outcomes that a replay superseded, which the caller subtracts: only the latest generation counts. Replays are
-- few, so this is cheaper than a check per row.
-- Index: primary key of oncebox_outcome.
WITH replayed AS (
    SELECT seq, handler, generation FROM oncebox_entry WHERE generation > 0
    UNION ALL SELECT seq, handler, generation FROM oncebox_running WHERE generation > 0
    UNION ALL SELECT seq, handler, generation FROM oncebox_poisoned WHERE generation > 0
    UNION ALL SELECT seq, handler, generation FROM oncebox_outcome WHERE generation > 0
), latest AS (
    SELECT seq, handler, max(generation) AS generation FROM replayed GROUP BY seq, handler
)
SELECT o.handler, o.status, count(*)
FROM latest l CROSS JOIN oncebox_outcome o ON o.seq = l.seq AND o.handler = l.handler AND o.generation < l.generation
GROUP BY o.handler, o.status
