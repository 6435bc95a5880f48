-- Forgets finished messages past their retention, a page at a time. A key that got new work while this looked is left: whoever
-- gives work to a known message also writes its proof. Answers with how many are gone, the last number looked at, how many
-- were looked at, and whether all of these were old enough. $1 now or nothing, $2 inbox, $3 retention, $4 the number to
-- go on after, $5 how many to look at, $6 all lanes, $7 the shortest window; of handlers with a window of their own: $8 the
-- number, $9 the window. The handlers are those of the same moment: one that was added meanwhile may run already.
WITH moment AS MATERIALIZED (
    SELECT now, now - $3 AS cutoff, now - $7 AS latest
    FROM (SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now) m
), page AS MATERIALIZED (
    SELECT p.seq, p.received_at, p.inbox, octet_length(p.handlers) = 0 AS unrouted, p.ctid AS tid, p.xmin AS version
    FROM @proof p WHERE p.seq > $4 ORDER BY p.seq LIMIT $5
), bounds AS MATERIALIZED (
    SELECT min(seq) AS first, max(seq) AS last FROM page
), unfinished AS MATERIALIZED (
    SELECT e.seq FROM @entry e, bounds b
    WHERE e.lane = ANY ($6::int2[]) AND e.handler = ANY (ARRAY(SELECT h.id FROM @handler h WHERE h.inbox = $2)) AND e.seq BETWEEN b.first AND b.last
    UNION ALL SELECT e.seq FROM @later e, bounds b WHERE e.lane = ANY ($6::int2[]) AND e.seq BETWEEN b.first AND b.last
    UNION ALL SELECT e.seq FROM @poisoned e, bounds b WHERE e.lane = ANY ($6::int2[]) AND e.seq BETWEEN b.first AND b.last
    UNION ALL SELECT e.seq FROM @outcome e, moment m
    WHERE e.lane = ANY ($6::int2[]) AND e.seq BETWEEN (SELECT first FROM bounds) AND (SELECT last FROM bounds)
      AND e.at > m.now - coalesce(($9::int8[])[array_position($8::int2[], e.handler)], $3)
), finished AS MATERIALIZED (
    SELECT p.* FROM page p, moment m
    WHERE p.inbox = $2 AND p.received_at <= CASE WHEN p.unrouted THEN m.cutoff ELSE m.latest END
      AND p.seq NOT IN (SELECT seq FROM unfinished)
), gone AS (
    DELETE FROM @proof p USING finished f WHERE p.ctid = f.tid AND p.xmin = f.version
    RETURNING p.seq, p.received_at
), messages AS (
    -- Few are kept, if any: they are looked for by range. IS TRUE keeps the planner from joining them one by one.
    DELETE FROM @message_kept k
    WHERE k.lane = ANY ($6::int2[]) AND k.seq BETWEEN (SELECT first FROM bounds) AND (SELECT last FROM bounds)
      AND (k.seq IN (SELECT seq FROM gone)) IS TRUE
), outcomes AS (
    DELETE FROM @outcome_kept k
    WHERE k.lane = ANY ($6::int2[]) AND k.seq BETWEEN (SELECT first FROM bounds) AND (SELECT last FROM bounds)
      AND (k.seq IN (SELECT seq FROM gone)) IS TRUE
), forgotten AS (
    UPDATE @inbox i SET watermark = greatest(i.watermark, g.last)
    FROM (SELECT max(received_at) AS last FROM gone HAVING count(*) > 0) g WHERE i.id = $2
)
SELECT (SELECT count(*) FROM gone), (SELECT last FROM bounds), (SELECT count(*) FROM page),
       -- One from a time when the clock was wrong may stay, but keeps no other from leaving.
       NOT EXISTS (SELECT 1 FROM page p, moment m WHERE p.received_at > m.latest AND p.received_at <= m.now)
