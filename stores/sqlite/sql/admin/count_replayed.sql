-- Outcomes that a replay has superseded: what is counted is the latest generation. Replays are few, so they are taken off
-- the sum instead of being looked for at every row.
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
