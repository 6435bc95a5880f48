-- Counts the entries of an inbox by handler and status. Outcomes that a replay superseded are subtracted: only the
-- latest generation counts.
-- $1 inbox smallint
-- Index: none: it scans every table of entries.
WITH replayed AS (
    SELECT seq, handler, generation FROM oncebox_scheduled WHERE generation > 0
    UNION ALL SELECT seq, handler, generation FROM oncebox_entry WHERE generation > 0
    UNION ALL SELECT seq, handler, generation FROM oncebox_poisoned WHERE generation > 0
    UNION ALL SELECT seq, handler, generation FROM oncebox_outcome WHERE generation > 0
), latest AS (
    SELECT seq, handler, max(generation) AS generation FROM replayed GROUP BY seq, handler
), counted AS (
    SELECT handler, CASE WHEN token IS NULL THEN 'pending' ELSE 'running' END AS status, count(*) AS count FROM oncebox_entry
    GROUP BY 1, 2
    UNION ALL SELECT handler, 'pending', count(*) FROM oncebox_scheduled GROUP BY handler
    UNION ALL SELECT handler, 'poisoned', count(*) FROM oncebox_poisoned WHERE seq >= 68719476736 GROUP BY handler
    -- Outcomes may outlive their proofs.
    UNION ALL SELECT o.handler, o.status, count(*) FROM oncebox_outcome o
    WHERE EXISTS (SELECT 1 FROM oncebox_proof p WHERE p.seq = o.seq) GROUP BY o.handler, o.status
    UNION ALL SELECT o.handler, o.status, -count(*)
    FROM latest l JOIN oncebox_outcome o
      ON o.lane = l.seq & 63 AND o.seq = l.seq AND o.handler = l.handler AND o.generation < l.generation
    GROUP BY o.handler, o.status
)
SELECT h.key, c.status, sum(c.count)::bigint
FROM counted c JOIN oncebox_handler h ON h.id = c.handler WHERE h.inbox = $1
GROUP BY h.key, c.status HAVING sum(c.count) > 0 ORDER BY h.key, c.status
