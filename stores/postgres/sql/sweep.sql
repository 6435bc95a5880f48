-- name: sweep_again
-- Deletes finished messages that are past their windows, of a given list: few, and far apart. Returns the number of
-- deleted messages, those of the list that no longer exist, and the number of deleted entries.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 seqs bigint[]
-- $4 span bigint: of messages without entries and of handlers without one, in ms
-- $5 handler smallint[] (with a window)
-- $6 span bigint[] in ms
-- Index: oncebox_proof_seq, the primary keys of the tables of entries.
-- Lock order: oncebox_proof, skips locked rows. Then oncebox_duplicate by (lane, seq).
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), page AS MATERIALIZED (
    SELECT p.* FROM unnest($3::int8[]) AS o (seq) CROSS JOIN LATERAL (
        SELECT p.seq, (p.seq & 63)::int2 AS home, p.received_at, p.lane, p.digest, p.handlers, p.ctid AS tid, p.xmin AS version
        FROM oncebox_proof p WHERE p.seq = o.seq AND p.inbox = $2 LIMIT 1
    ) p
), finished AS MATERIALIZED (
    SELECT p.tid, p.version FROM page p, moment m
    WHERE p.received_at <= CASE octet_length(p.handlers) WHEN 0 THEN m.now - $4 ELSE m.now END
      AND (SELECT e.seq FROM oncebox_entry e WHERE e.lane = p.home AND e.seq = p.seq
           AND e.handler = ANY (ARRAY(SELECT h.id FROM oncebox_handler h WHERE h.inbox = $2)) LIMIT 1) IS NULL
      AND (SELECT e.seq FROM oncebox_scheduled e WHERE e.lane = p.home AND e.seq = p.seq LIMIT 1) IS NULL
      AND (SELECT e.seq FROM oncebox_poisoned e WHERE e.lane = p.home AND e.seq = p.seq LIMIT 1) IS NULL
      AND (SELECT e.seq FROM oncebox_outcome e WHERE e.lane = p.home AND e.seq = p.seq
           AND e.at > m.now - coalesce(($6::int8[])[array_position($5::int2[], e.handler)], $4) LIMIT 1) IS NULL
), held AS MATERIALIZED (
    -- The transaction already holds keys, so it must not wait: the next sweep reads rows that are locked now.
    SELECT p.ctid AS tid FROM finished f JOIN oncebox_proof p ON p.ctid = f.tid AND p.xmin = f.version FOR UPDATE OF p SKIP LOCKED
), gone AS (
    DELETE FROM oncebox_proof p USING held h WHERE p.ctid = h.tid
    RETURNING p.seq, p.received_at, p.handlers
), messages AS (
    DELETE FROM oncebox_message_kept k USING gone g WHERE k.lane = ANY (ARRAY[(g.seq & 63)::int2]) AND k.seq = g.seq
), outcomes AS (
    DELETE FROM oncebox_outcome_kept k USING gone g WHERE k.lane = ANY (ARRAY[(g.seq & 63)::int2]) AND k.seq = g.seq
), attempts AS (
    DELETE FROM oncebox_attempt k USING gone g WHERE k.lane = ANY (ARRAY[(g.seq & 63)::int2]) AND k.seq = g.seq
), duplicates AS (
    -- `history_count_duplicates` locks rows in this order.
    DELETE FROM oncebox_duplicate k USING (SELECT g.seq FROM gone g ORDER BY g.seq & 63, g.seq OFFSET 0) g
    WHERE k.lane = ANY (ARRAY[(g.seq & 63)::int2]) AND k.seq = g.seq
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
SELECT (SELECT count(*) FROM gone),
       ARRAY(SELECT o.seq FROM unnest($3::int8[]) AS o (seq)
             WHERE o.seq <> ALL (ARRAY(SELECT p.seq FROM page p)) OR o.seq = ANY (ARRAY(SELECT g.seq FROM gone g))),
       (SELECT coalesce(sum(octet_length(handlers) / 2), 0)::int8 FROM gone);

-- name: sweep_begin
-- Returns a row if this sweep may start: no other process sweeps, or the last one did not continue in time.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 sweep uuid
-- Index: primary key of oncebox_inbox.
-- Lock order: the row of oncebox_inbox, until the transaction ends; skips it if locked.
SELECT 1 FROM oncebox_inbox
WHERE id = $2
  AND (sweeper IS NULL OR sweeper = $3
       OR sweeper_until < coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint))
FOR NO KEY UPDATE SKIP LOCKED;

-- name: sweep_cursor
-- Reads the sweep cursor of a window.
-- $1 inbox smallint
-- $2 span bigint in ms
-- $3 digest bigint: of all windows
-- Index: primary key of oncebox_sweep_cursor.
SELECT upto, behind FROM oncebox_sweep_cursor WHERE inbox = $1 AND span = $2 AND digest = $3;

-- name: sweep_go_on
-- Returns a row if it is this sweep's turn. Waits for a process that checks at this moment whether it may begin: that
-- process may hold the row though it is not its turn, and if both gave up, neither would sweep. A sweep whose turn is
-- over does not wait: another one may have taken the turn.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 sweep uuid
-- Index: primary key of oncebox_inbox.
-- Lock order: the row of oncebox_inbox, until the transaction ends.
SELECT 1 FROM oncebox_inbox
WHERE id = $2 AND sweeper = $3
  AND sweeper_until >= coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint)
FOR NO KEY UPDATE;

-- name: sweep_marks
-- Deletes marks past the window of their handler, oldest of each handler first.
-- $1 now bigint or NULL (server clock)
-- $2 inbox text
-- $3 span bigint: of handlers without one, in ms
-- $4 limit bigint
-- $5 handler text[]: key (with a window)
-- $6 span bigint[] in ms
-- Index: oncebox_mark_age.
-- Lock order: oncebox_mark by age; skips locked rows.
WITH RECURSIVE moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), marked AS (
    -- The handlers that have marks: one index step each.
    (SELECT m.handler FROM oncebox_mark m WHERE m.inbox = $2 ORDER BY m.handler LIMIT 1)
    UNION ALL
    SELECT (SELECT m.handler FROM oncebox_mark m WHERE m.inbox = $2 AND m.handler > h.handler ORDER BY m.handler LIMIT 1)
    FROM marked h WHERE h.handler IS NOT NULL
)
DELETE FROM oncebox_mark WHERE ctid = ANY (ARRAY(
    SELECT old.tid
    FROM moment, marked h CROSS JOIN LATERAL (
        SELECT m.ctid AS tid FROM oncebox_mark m
        WHERE m.inbox = $2 AND m.handler = h.handler
          AND m.at <= moment.now - coalesce(($6::int8[])[array_position($5::text[], h.handler)], $3)
        ORDER BY m.at LIMIT $4 FOR UPDATE SKIP LOCKED
    ) old
    LIMIT $4
));

-- name: sweep_proofs
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
) l;

-- name: sweep_renew
-- Extends the turn of a sweep until the next page, or ends it.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 sweep uuid or NULL to end
-- $4 turn bigint in ms
-- Index: primary key of oncebox_inbox.
-- Lock order: the row of oncebox_inbox.
UPDATE oncebox_inbox
SET sweeper = $3, sweeper_until = coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) + $4
WHERE id = $2 AND (sweeper IS NOT NULL OR $3::uuid IS NOT NULL);

-- name: sweep_set_cursor
-- Stores the cursor of a sweep, and deletes cursors of former windows.
-- $1 inbox smallint
-- $2 span bigint in ms
-- $3 digest bigint: of all windows
-- $4 upto bigint: last number
-- $5 behind bigint[]: numbers that need another look
-- Index: primary key of oncebox_sweep_cursor.
-- Lock order: the rows of oncebox_sweep_cursor.
WITH others AS (
    DELETE FROM oncebox_sweep_cursor WHERE inbox = $1 AND digest <> $3 AND span <> $2
)
INSERT INTO oncebox_sweep_cursor (inbox, span, digest, upto, behind) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (inbox, span) DO UPDATE SET digest = excluded.digest, upto = excluded.upto, behind = excluded.behind;

-- name: sweep_open_for
-- Returns for how long transactions of callers are open that accepted messages, in ms: 0 if there is none. Their numbers
-- are not visible yet.
-- $1 now bigint or NULL (server clock)
-- $2 class integer: of the locks of open transactions
-- Index: none: the locks are in the server's memory.
SELECT coalesce(greatest(
           coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) - min(l.objid::int8) * 60000, 0), 0)
FROM pg_locks l
WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid = $2::int4::oid AND l.granted
  AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
