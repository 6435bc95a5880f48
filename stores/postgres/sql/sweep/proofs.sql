-- Forgets finished messages that have left a window, a page at a time. A key that got new work while this looked is left: whoever
-- gives work to a known message also writes its proof. Answers with how many are gone, how many were looked at, the last of these,
-- the last that nothing can come in before any more, which of those before it have to be looked at again, and how many entries the
-- messages that are gone had. $1 now or nothing,
-- $2 inbox, $3 the window, $4 the number to go on after, $5 how many to look at, $6 all lanes, $7 the window of messages without
-- entries and of handlers without one; of handlers: $8 the number, $9 the window; $10 those with a longer window, $11 the age at
-- which no message can come in before another. The handlers are those of the same moment: one that was added meanwhile may run
-- already.
WITH moment AS MATERIALIZED (
    SELECT now, now - $3 AS cutoff, now - $11 AS settled
    FROM (SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now) m
), page AS MATERIALIZED (
    SELECT p.seq, p.received_at, p.inbox, p.handlers, p.ctid AS tid, p.xmin AS version
    FROM oncebox_proof p WHERE p.seq > $4 ORDER BY p.seq LIMIT $5
), bounds AS MATERIALIZED (
    -- The first that is too young ends the walk. One from a time when the clock was wrong stays, but keeps no other from leaving.
    SELECT min(p.seq) AS first,
           coalesce(min(p.seq) FILTER (WHERE p.received_at > m.cutoff AND p.received_at <= m.now) - 1, max(p.seq)) AS last,
           -- The numbers are shared by all lanes, and begin above the lane.
           (max(p.seq) - min(p.seq)) >> 6 <= 4 * count(*) AS close
    FROM page p, moment m
), later AS MATERIALIZED (
    -- What goes to a handler with a longer window is looked at when that is over. Mostly there is none, and nobody has to look.
    SELECT CASE WHEN cardinality($10::int2[]) > 0 OR $7::bigint > $3::bigint THEN ARRAY(
        SELECT s.handlers FROM (SELECT DISTINCT handlers FROM page) s
        WHERE CASE octet_length(s.handlers) WHEN 0 THEN $7::bigint > $3::bigint ELSE (
            SELECT bool_or(get_byte(s.handlers, i) * 256 + get_byte(s.handlers, i + 1) = ANY ($10::int2[]))
            FROM generate_series(0, octet_length(s.handlers) - 2, 2) i
        ) END
    ) ELSE '{}' END AS handlers
), unfinished AS MATERIALIZED (
    -- Of an array the server expects few, however large it takes the tables for: so it looks them up in memory, and does not compare
    -- each key with all of them. Here and below.
    SELECT unnest(ARRAY(
        SELECT e.seq FROM oncebox_entry e
        WHERE e.lane = ANY ($6::int2[]) AND e.handler = ANY (ARRAY(SELECT h.id FROM oncebox_handler h WHERE h.inbox = $2))
          AND e.seq BETWEEN (SELECT first FROM bounds) AND (SELECT last FROM bounds)
        UNION ALL
        SELECT e.seq FROM oncebox_scheduled e
        WHERE e.lane = ANY ($6::int2[]) AND e.seq BETWEEN (SELECT first FROM bounds) AND (SELECT last FROM bounds)
        UNION ALL
        SELECT e.seq FROM oncebox_poisoned e
        WHERE e.lane = ANY ($6::int2[]) AND e.seq BETWEEN (SELECT first FROM bounds) AND (SELECT last FROM bounds)
    )) AS seq
), young AS MATERIALIZED (
    -- Outcomes within their window, where messages lie close together.
    SELECT unnest(ARRAY(
        SELECT e.seq FROM oncebox_outcome e
        WHERE e.lane = ANY ($6::int2[])
          AND e.seq BETWEEN (SELECT CASE WHEN close THEN first END FROM bounds) AND (SELECT last FROM bounds)
          AND e.at > (SELECT now FROM moment) - coalesce(($9::int8[])[array_position($8::int2[], e.handler)], $7)
    )) AS seq
), ours AS MATERIALIZED (
    -- Elsewhere one by one: between few messages that are far apart there may be the history of many that are forgotten.
    SELECT p.seq, p.tid, p.version, p.received_at <= m.now AND p.seq NOT IN (SELECT seq FROM unfinished)
               AND CASE WHEN b.close THEN p.seq NOT IN (SELECT seq FROM young) ELSE (
                   SELECT e.seq FROM oncebox_outcome e WHERE e.lane = (p.seq & 63)::int2 AND e.seq = p.seq
                   AND e.at > m.now - coalesce(($9::int8[])[array_position($8::int2[], e.handler)], $7) LIMIT 1
               ) IS NULL END AS over,
           p.received_at <= m.settled OR p.received_at > m.now AS settled
    FROM page p, moment m, bounds b, later l
    WHERE p.inbox = $2 AND p.seq <= b.last AND p.handlers <> ALL (l.handlers)
), gone AS (
    -- Known keys are locked by their number, by everybody: the page is in that order.
    DELETE FROM oncebox_proof p USING (SELECT o.tid, o.version FROM ours o WHERE o.over OFFSET 0) f
    WHERE p.ctid = f.tid AND p.xmin = f.version
    RETURNING p.seq, p.received_at, p.handlers
), away AS MATERIALIZED (
    SELECT unnest(ARRAY(SELECT seq FROM gone)) AS seq
), messages AS (
    -- Few are kept, if any: they are looked for by range. IS TRUE keeps the planner from joining them one by one.
    DELETE FROM oncebox_message_kept k
    WHERE k.lane = ANY ($6::int2[]) AND k.seq BETWEEN (SELECT first FROM bounds) AND (SELECT last FROM bounds)
      AND (k.seq IN (SELECT seq FROM away)) IS TRUE
), outcomes AS (
    DELETE FROM oncebox_outcome_kept k
    WHERE k.lane = ANY ($6::int2[]) AND k.seq BETWEEN (SELECT first FROM bounds) AND (SELECT last FROM bounds)
      AND (k.seq IN (SELECT seq FROM away)) IS TRUE
), attempts AS (
    DELETE FROM oncebox_attempt k
    WHERE k.lane = ANY ($6::int2[]) AND k.seq BETWEEN (SELECT first FROM bounds) AND (SELECT last FROM bounds)
      AND (k.seq IN (SELECT seq FROM away)) IS TRUE
), duplicates AS (
    DELETE FROM oncebox_duplicate k
    WHERE k.lane = ANY ($6::int2[]) AND k.seq BETWEEN (SELECT first FROM bounds) AND (SELECT last FROM bounds)
      AND (k.seq IN (SELECT seq FROM away)) IS TRUE
), newest AS MATERIALIZED (
    SELECT handlers, max(received_at) AS at FROM gone GROUP BY handlers
), forgotten AS (
    -- Handlers that turned out to be one have forgotten the same.
    UPDATE oncebox_handler h SET watermark = n.at
    FROM (
        SELECT coalesce(o.same_as, o.id) AS id, max(n.at) AS at
        FROM newest n CROSS JOIN generate_series(0, octet_length(n.handlers) - 2, 2) i
        JOIN oncebox_handler o ON o.id = get_byte(n.handlers, i) * 256 + get_byte(n.handlers, i + 1) GROUP BY 1
    ) n
    WHERE coalesce(h.same_as, h.id) = n.id AND h.watermark < n.at
), unrouted AS (
    UPDATE oncebox_inbox i SET watermark = greatest(i.watermark, n.at) FROM newest n WHERE i.id = $2 AND octet_length(n.handlers) = 0
)
SELECT (SELECT count(*) FROM gone), l.count, l.last, l.passed,
       CASE WHEN (SELECT count(*) FROM ours) > (SELECT count(*) FROM gone) THEN ARRAY(
           SELECT o.seq FROM ours o WHERE o.settled AND (o.seq NOT IN (SELECT seq FROM away)) IS TRUE ORDER BY o.seq LIMIT $12
       ) ELSE '{}' END,
       (SELECT coalesce(sum(octet_length(handlers) / 2), 0)::int8 FROM gone)
FROM (
    SELECT count(*), max(p.seq) AS last, max(p.seq) FILTER (WHERE p.received_at <= m.settled OR p.received_at > m.now) AS passed
    FROM page p, bounds b, moment m WHERE p.seq <= b.last
) l
