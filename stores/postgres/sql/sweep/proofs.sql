-- Deletes a page of finished messages that are past a window. Keeps a key that got new work meanwhile: adding work also
-- writes its proof. Handlers are read in the same statement, because one that was added since may already run. Returns:
-- deleted messages; messages read; the last of these; the last number before which no message can be inserted any more;
-- the numbers before it that need another look; and deleted entries.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 span bigint: of the window, in ms
-- $4 seq bigint: to continue after
-- $5 page bigint: size
-- $6 lanes smallint[]: all of them
-- $7 span bigint: of messages without entries and of handlers without one, in ms
-- $8 handler smallint[] (with a window)
-- $9 span bigint[] in ms
-- $10 handlers smallint[]: with a longer window
-- $11 settled bigint: age in ms at which no earlier message can appear
-- $12 limit bigint: of the numbers that need another look
-- Index: oncebox_proof_seq, the primary keys of the tables of entries.
-- Lock order: known keys of oncebox_proof by number, as all statements do.
WITH moment AS MATERIALIZED (
    SELECT now, now - $3 AS cutoff, now - $11 AS settled
    FROM (SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now) m
), page AS MATERIALIZED (
    SELECT p.seq, p.received_at, p.inbox, p.handlers, p.ctid AS tid, p.xmin AS version
    FROM oncebox_proof p WHERE p.seq > $4 ORDER BY p.seq LIMIT $5
), bounds AS MATERIALIZED (
    -- The first message inside the window ends the page. One with a receive time in the future stays, but blocks no other.
    SELECT min(p.seq) AS first,
           coalesce(min(p.seq) FILTER (WHERE p.received_at > m.cutoff AND p.received_at <= m.now) - 1, max(p.seq)) AS last,
           -- All lanes share the numbers, which begin above the lane.
           (max(p.seq) - min(p.seq)) >> 6 <= 4 * count(*) AS close
    FROM page p, moment m
), later AS MATERIALIZED (
    -- Messages for a handler with a longer window wait until it is over. Mostly there is no such handler.
    SELECT CASE WHEN cardinality($10::int2[]) > 0 OR $7::bigint > $3::bigint THEN ARRAY(
        SELECT s.handlers FROM (SELECT DISTINCT handlers FROM page) s
        WHERE CASE octet_length(s.handlers) WHEN 0 THEN $7::bigint > $3::bigint ELSE (
            SELECT bool_or(get_byte(s.handlers, i) * 256 + get_byte(s.handlers, i + 1) = ANY ($10::int2[]))
            FROM generate_series(0, octet_length(s.handlers) - 2, 2) i
        ) END
    ) ELSE '{}' END AS handlers
), unfinished AS MATERIALIZED (
    -- The server expects few elements in an array, however large the tables. So it uses a hash, and does not compare each
    -- key with all of them. The same below.
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
    -- Outcomes within their window, for messages with close numbers.
    SELECT unnest(ARRAY(
        SELECT e.seq FROM oncebox_outcome e
        WHERE e.lane = ANY ($6::int2[])
          AND e.seq BETWEEN (SELECT CASE WHEN close THEN first END FROM bounds) AND (SELECT last FROM bounds)
          AND e.at > (SELECT now FROM moment) - coalesce(($9::int8[])[array_position($8::int2[], e.handler)], $7)
    )) AS seq
), ours AS MATERIALIZED (
    -- Otherwise one by one: between messages with distant numbers there may be the outcomes of many swept ones.
    SELECT p.seq, p.tid, p.version, p.received_at <= m.now AND p.seq NOT IN (SELECT seq FROM unfinished)
               AND CASE WHEN b.close THEN p.seq NOT IN (SELECT seq FROM young) ELSE (
                   SELECT e.seq FROM oncebox_outcome e WHERE e.lane = (p.seq & 63)::int2 AND e.seq = p.seq
                   AND e.at > m.now - coalesce(($9::int8[])[array_position($8::int2[], e.handler)], $7) LIMIT 1
               ) IS NULL END AS over,
           p.received_at <= m.settled OR p.received_at > m.now AS settled
    FROM page p, moment m, bounds b, later l
    WHERE p.inbox = $2 AND p.seq <= b.last AND p.handlers <> ALL (l.handlers)
), gone AS (
    -- All statements lock known keys by number: the page is in that order.
    DELETE FROM oncebox_proof p USING (SELECT o.tid, o.version FROM ours o WHERE o.over OFFSET 0) f
    WHERE p.ctid = f.tid AND p.xmin = f.version
    RETURNING p.seq, p.received_at, p.handlers
), away AS MATERIALIZED (
    SELECT unnest(ARRAY(SELECT seq FROM gone)) AS seq
), messages AS (
    -- Few rows are kept, if any, so a range finds them. IS TRUE keeps the planner from joining them one by one.
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
    -- Joined handlers share their watermark.
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
