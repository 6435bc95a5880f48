-- name: admin_blocked
-- Lists order keys that a poisoned entry blocks, oldest first: a row per handler and order key, with the count behind
-- it.
-- $1 inbox smallint
-- $2 limit bigint
-- $3 tenant text or NULL
-- Index: oncebox_poisoned_line, oncebox_poisoned_order, oncebox_scheduled_order, oncebox_proof_seq.
WITH head AS MATERIALIZED (
    SELECT e.seq, e.lane, e.handler, e.order_key, e.at, e.in_line, h.key
    FROM oncebox_poisoned e JOIN oncebox_handler h ON h.id = e.handler
    WHERE h.inbox = $1 AND e.seq >= 68719476736 AND e.in_line IN ('blocks', 'parks') AND NOT EXISTS (
        SELECT 1 FROM oncebox_poisoned b
        WHERE b.lane = e.lane AND b.handler = e.handler AND b.order_key = e.order_key AND b.in_line IN ('blocks', 'parks')
          AND b.seq < e.seq AND b.seq >= 68719476736
    ) AND ($3::text IS NULL OR EXISTS (SELECT 1 FROM oncebox_proof p WHERE p.seq = e.seq AND p.tenant = $3))
    ORDER BY e.seq, h.key COLLATE "C" LIMIT $2
)
SELECT e.seq, e.key, e.at, e.in_line = 'parks', p.digest, m.ordering_key, b.count,
       (SELECT o.received_at FROM oncebox_proof o WHERE o.seq = b.first)
FROM head e JOIN oncebox_proof p ON p.seq = e.seq
LEFT JOIN oncebox_message m ON m.lane = e.lane AND m.seq = e.seq
CROSS JOIN LATERAL (
    SELECT count(*) AS count, min(w.seq) AS first FROM (
        SELECT o.seq FROM oncebox_scheduled o
        WHERE o.lane = e.lane AND o.handler = e.handler AND o.order_key = e.order_key AND o.seq > e.seq
        UNION ALL SELECT o.seq FROM oncebox_poisoned o
        WHERE o.lane = e.lane AND o.handler = e.handler AND o.order_key = e.order_key AND o.in_line = 'parked' AND o.seq > e.seq
    ) w
) b
ORDER BY e.seq, e.key COLLATE "C";

-- name: admin_count
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
GROUP BY h.key, c.status HAVING sum(c.count) > 0 ORDER BY h.key, c.status;

-- name: admin_count_tenant
-- Counts the entries of one tenant by handler and status. Only the latest generation of a replayed entry counts.
-- $1 inbox smallint
-- $2 tenant text
-- Index: oncebox_proof_tenant, then the primary key of oncebox_outcome; unfinished entries are scanned.
WITH theirs AS MATERIALIZED (
    SELECT seq FROM oncebox_proof WHERE tenant = $2 AND inbox = $1
), unfinished AS MATERIALIZED (
    SELECT e.seq, e.handler, CASE WHEN e.token IS NULL THEN 'pending' ELSE 'running' END AS status
    FROM oncebox_entry e JOIN theirs t ON t.seq = e.seq
    UNION ALL SELECT e.seq, e.handler, 'pending' FROM oncebox_scheduled e JOIN theirs t ON t.seq = e.seq
    UNION ALL SELECT e.seq, e.handler, 'poisoned' FROM oncebox_poisoned e JOIN theirs t ON t.seq = e.seq
), finished AS (
    SELECT DISTINCT ON (o.seq, o.handler) o.seq, o.handler, o.status
    FROM oncebox_outcome o JOIN theirs t ON t.seq = o.seq AND o.lane = t.seq & 63
    WHERE NOT EXISTS (SELECT 1 FROM unfinished u WHERE u.seq = o.seq AND u.handler = o.handler)
    ORDER BY o.seq, o.handler, o.generation DESC
)
SELECT h.key, c.status, count(*)
FROM (SELECT handler, status FROM unfinished UNION ALL SELECT handler, status FROM finished) c
JOIN oncebox_handler h ON h.id = c.handler
GROUP BY h.key, c.status;

-- name: admin_discarded
-- Records an entry as discarded.
-- $1 now bigint or NULL (server clock)
-- $2 seq bigint
-- $3 handler smallint
-- $4 generation integer
-- $5 attempts integer
-- $6 crashes integer
-- $7 error text or NULL
INSERT INTO oncebox_outcome (seq, token, at, attempts, crashes, generation, lane, handler, status, error)
VALUES ($2, 0, coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint), $5, $6, $4, $2 & 63, $3, 'discarded', $7);

-- name: admin_find
-- Reads the proof of a key.
-- $1 lane smallint
-- $2 digest bytea
-- $3 inbox smallint
-- Index: primary key of oncebox_proof.
SELECT seq, received_at, tenant, fingerprint FROM oncebox_proof WHERE lane = $1 AND digest = $2 AND inbox = $3;

-- name: admin_hold
-- Locks the proof of a key against transactions that add work to it or forget it.
-- $1 lane smallint
-- $2 digest bytea
-- Index: primary key of oncebox_proof.
-- Lock order: the row of oncebox_proof, until the transaction ends.
UPDATE oncebox_proof SET handlers = handlers WHERE lane = $1 AND digest = $2 RETURNING seq;

-- name: admin_list
-- Lists entries after a position, by number and handler. Reads at most $3 entries of each kind and lane, whatever the
-- filter. Returns rows of other inboxes and of replayed generations too, so that the caller knows how far this read. The
-- caller filters by everything but the status.
-- $1 seq bigint: to continue after
-- $2 handler text: key to continue after
-- $3 limit bigint
-- $4 statuses text[]
-- $5 lanes smallint[]: all of them
-- $6 handlers smallint[]: of the inbox
-- Index: the primary keys of the tables of entries; running entries through oncebox_claim.
WITH looked AS MATERIALIZED (
    SELECT e.*, h.inbox, h.key, h.origin
    FROM (
        SELECT r.seq, r.handler, 'pending' AS status, coalesce(r.attempts, 0) AS attempts, coalesce(r.crashes, 0) AS crashes,
               coalesce(r.generation, 0) AS generation, r.due AS at, NULL::text AS reason, r.error, NULL::text AS in_line
        FROM unnest($5::int2[]) l (lane) CROSS JOIN unnest($6::int2[]) k (handler) CROSS JOIN LATERAL (
            SELECT * FROM oncebox_entry e
            WHERE e.lane = l.lane AND e.handler = k.handler AND e.seq >= $1 AND e.token IS NULL
              AND (e.seq > $1 OR (SELECT h.key FROM oncebox_handler h WHERE h.id = e.handler) COLLATE "C" > $2)
            ORDER BY e.seq LIMIT $3
        ) r
        WHERE 'pending' = ANY ($4::text[])
        UNION ALL
        -- Ranges of a claim may overlap.
        SELECT DISTINCT e.seq, e.handler, 'running', coalesce(e.attempts, 0), coalesce(e.crashes, 0), coalesce(e.generation, 0),
               e.lease_until, NULL, e.error, NULL
        FROM oncebox_claim c CROSS JOIN LATERAL unnest(c.lanes, c.handlers, c.firsts, c.lasts) AS l (lane, handler, first, last)
        JOIN oncebox_entry e ON e.lane = l.lane AND e.handler = l.handler AND e.seq BETWEEN l.first AND l.last AND e.claim_id = c.claim_id
        WHERE 'running' = ANY ($4::text[]) AND e.seq >= $1
        UNION ALL
        SELECT r.seq, r.handler, 'pending', r.attempts, r.crashes, r.generation, r.due, NULL, r.error, NULL
        FROM unnest($5::int2[]) l (lane) CROSS JOIN LATERAL (
            SELECT * FROM oncebox_scheduled e WHERE e.lane = l.lane AND e.seq >= $1
              AND (e.seq > $1 OR (SELECT h.key FROM oncebox_handler h WHERE h.id = e.handler) COLLATE "C" > $2)
            -- Reads all entries of a message: the order of its handlers differs between tables and lists.
            ORDER BY e.seq FETCH FIRST ($3) ROWS WITH TIES
        ) r
        WHERE 'pending' = ANY ($4::text[])
        UNION ALL
        SELECT r.seq, r.handler, 'poisoned', r.attempts, r.crashes, r.generation, r.at, r.reason, r.error, r.in_line
        FROM unnest($5::int2[]) l (lane) CROSS JOIN LATERAL (
            SELECT * FROM oncebox_poisoned e WHERE e.lane = l.lane AND e.seq >= $1
              AND (e.seq > $1 OR (SELECT h.key FROM oncebox_handler h WHERE h.id = e.handler) COLLATE "C" > $2)
            -- Reads all entries of a message: the order of its handlers differs between tables and lists.
            ORDER BY e.seq FETCH FIRST ($3) ROWS WITH TIES
        ) r
        WHERE 'poisoned' = ANY ($4::text[])
        UNION ALL
        SELECT r.seq, r.handler, r.status, r.attempts, r.crashes, r.generation, r.at, NULL, r.error, NULL
        FROM unnest($5::int2[]) l (lane) CROSS JOIN LATERAL (
            SELECT * FROM oncebox_outcome e WHERE e.lane = l.lane AND e.seq >= $1
              AND (e.seq > $1 OR (SELECT h.key FROM oncebox_handler h WHERE h.id = e.handler) COLLATE "C" > $2)
            ORDER BY e.seq FETCH FIRST ($3) ROWS WITH TIES
        ) r
        WHERE $4::text[] && ARRAY['completed', 'discarded']
    ) e
    JOIN oncebox_handler h ON h.id = e.handler
    WHERE e.seq > $1 OR h.key COLLATE "C" > $2
    ORDER BY e.seq, h.key COLLATE "C", e.generation DESC LIMIT $3
)
SELECT e.seq, e.key, e.status, e.attempts, e.crashes, e.generation, e.at, e.reason, e.error, e.in_line, p.digest, p.received_at,
       p.tenant, m.source, m.id, m.type, m.ordering_key, e.inbox, e.status IN ('completed', 'discarded') AND (
           EXISTS (SELECT 1 FROM oncebox_outcome n
               WHERE n.lane = e.seq & 63 AND n.seq = e.seq AND n.handler = e.handler AND n.generation > e.generation)
           OR EXISTS (SELECT 1 FROM oncebox_scheduled n WHERE n.lane = e.seq & 63 AND n.seq = e.seq AND n.handler = e.handler)
           OR EXISTS (SELECT 1 FROM oncebox_entry n WHERE n.lane = e.seq & 63 AND n.seq = e.seq AND n.handler = e.handler)
           OR EXISTS (SELECT 1 FROM oncebox_poisoned n WHERE n.lane = e.seq & 63 AND n.seq = e.seq AND n.handler = e.handler)
       ), e.origin
FROM looked e
LEFT JOIN LATERAL (SELECT * FROM oncebox_proof p WHERE p.seq = e.seq LIMIT 1) p ON true
LEFT JOIN LATERAL (
    SELECT m.source, m.id, m.type, m.ordering_key FROM oncebox_message m WHERE m.lane = e.seq & 63 AND m.seq = e.seq LIMIT 1
) m ON true
ORDER BY e.seq, e.key COLLATE "C", e.generation DESC;

-- name: admin_list_quarantine
-- Lists quarantined messages of an inbox. Reads the length of a payload without reading the payload.
-- $1 inbox smallint
-- $2 reason text or NULL
-- $3 id bigint: to continue after
-- $4 limit bigint
-- $5 tenant text or NULL
-- Index: primary key of oncebox_quarantine.
SELECT id, reason, received_at, digest, tenant, source, message_id, type, ordering_key, octet_length(payload)
FROM oncebox_quarantine WHERE inbox = $1 AND ($2::text IS NULL OR reason = $2) AND id > $3 AND ($5::text IS NULL OR tenant = $5)
ORDER BY id LIMIT $4;

-- name: admin_order
-- Reads the order key of an unfinished entry.
-- $1 seq bigint
-- $2 handler smallint
-- Index: primary keys of oncebox_entry, oncebox_scheduled and oncebox_poisoned.
SELECT order_key FROM oncebox_entry WHERE lane = $1 & 63 AND handler = $2 AND seq = $1
UNION ALL SELECT order_key FROM oncebox_scheduled WHERE lane = $1 & 63 AND seq = $1 AND handler = $2
UNION ALL SELECT order_key FROM oncebox_poisoned WHERE lane = $1 & 63 AND seq = $1 AND handler = $2;

-- name: admin_paused
-- Lists the paused handlers of an inbox.
-- $1 inbox smallint
-- Index: none: the table is small.
SELECT key FROM oncebox_handler WHERE inbox = $1 AND paused ORDER BY key COLLATE "C";

-- name: admin_paused_keys
-- Lists order keys that an operator paused. Their rows have numbers below the first partition.
-- $1 inbox smallint
-- $2 lanes smallint[]: all of them
-- Index: primary key of oncebox_poisoned.
SELECT h.key, e.error, e.order_key FROM oncebox_poisoned e JOIN oncebox_handler h ON h.id = e.handler
WHERE h.inbox = $1 AND e.lane = ANY ($2::int2[]) AND e.seq < 68719476736;

-- name: admin_pending
-- Inserts an entry that is due now.
-- $1 now bigint or NULL (server clock)
-- $2 seq bigint
-- $3 handler smallint
-- $4 generation integer
-- $5 order_key bytea or NULL
-- $6 error text or NULL
INSERT INTO oncebox_scheduled (seq, due, not_before, lane, handler, generation, order_key, error)
SELECT $2, CASE WHEN $5::bytea IS NULL THEN now ELSE 9223372036854775807 END, now, $2 & 63, $3, $4, $5, $6
FROM (SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now) m;

-- name: admin_purge_quarantine
-- Deletes quarantined messages that are older than an age.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 age bigint in ms
-- $4 limit bigint
-- Index: primary key of oncebox_quarantine.
-- Lock order: oncebox_quarantine by id; skips locked rows.
DELETE FROM oncebox_quarantine WHERE id IN (
    SELECT id FROM oncebox_quarantine
    WHERE inbox = $2 AND received_at <= coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) - $3
    ORDER BY id LIMIT $4 FOR UPDATE SKIP LOCKED
);

-- name: admin_remove
-- Deletes a pending or poisoned entry. Returns no row if a worker holds it.
-- $1 seq bigint
-- $2 handler smallint
-- Index: primary keys of oncebox_entry, oncebox_scheduled and oncebox_poisoned.
-- Lock order: the row of the entry.
WITH entry AS (
    DELETE FROM oncebox_entry WHERE lane = $1 & 63 AND handler = $2 AND seq = $1 AND token IS NULL RETURNING seq
), scheduled AS (
    DELETE FROM oncebox_scheduled WHERE lane = $1 & 63 AND seq = $1 AND handler = $2 RETURNING seq
), poisoned AS (
    DELETE FROM oncebox_poisoned WHERE lane = $1 & 63 AND seq = $1 AND handler = $2 RETURNING seq
)
SELECT seq FROM entry UNION ALL SELECT seq FROM scheduled UNION ALL SELECT seq FROM poisoned;

-- name: admin_set_paused
-- Pauses or resumes a handler.
-- $1 handler smallint
-- $2 paused boolean
-- Index: primary key of oncebox_handler.
-- Lock order: the row of oncebox_handler.
UPDATE oncebox_handler SET paused = $2 WHERE id = $1 AND paused <> $2;

-- name: admin_show_entries
-- Lists all entries and outcomes of one message.
-- $1 seq bigint
-- $2 handlers smallint[]: all of them
-- Index: the primary keys of the tables of entries.
SELECT e.seq, h.key, e.status, e.attempts, e.crashes, e.generation, e.at, e.reason, e.error, e.in_line, h.origin
FROM (
    SELECT seq, handler, CASE WHEN token IS NULL THEN 'pending' ELSE 'running' END AS status, coalesce(attempts, 0) AS attempts,
           coalesce(crashes, 0) AS crashes, coalesce(generation, 0) AS generation, coalesce(lease_until, due) AS at,
           NULL::text AS reason, error, NULL::text AS in_line FROM oncebox_entry WHERE lane = $1 & 63 AND handler = ANY ($2::int2[]) AND seq = $1
    UNION ALL SELECT seq, handler, 'pending', attempts, crashes, generation, due, NULL, error, NULL FROM oncebox_scheduled
    WHERE lane = $1 & 63 AND seq = $1
    UNION ALL SELECT seq, handler, 'poisoned', attempts, crashes, generation, at, reason, error, in_line FROM oncebox_poisoned
    WHERE lane = $1 & 63 AND seq = $1
    UNION ALL SELECT seq, handler, status, attempts, crashes, generation, at, NULL, error, NULL FROM oncebox_outcome
    WHERE lane = $1 & 63 AND seq = $1
) e JOIN oncebox_handler h ON h.id = e.handler
ORDER BY h.key COLLATE "C", e.generation;

-- name: admin_show_message
-- Reads the content of a message.
-- $1 seq bigint
-- Index: primary key of oncebox_message.
SELECT time, source, id, type, ordering_key, headers, payload, tenant FROM oncebox_message WHERE lane = $1 & 63 AND seq = $1;

-- name: admin_show_quarantine
-- Reads the quarantined messages of a key, with their payloads.
-- $1 digest bytea
-- $2 inbox smallint
-- $3 limit bigint
-- Index: unique (digest, fingerprint) of oncebox_quarantine.
SELECT reason, received_at, time, source, message_id, type, ordering_key, headers, payload, tenant
FROM oncebox_quarantine WHERE digest = $1 AND inbox = $2 ORDER BY id LIMIT $3;

-- name: admin_totals
-- Counts the messages of an inbox, those without entries, the quarantined messages, and the stale ones of these.
-- $1 inbox smallint
-- Index: none: it scans oncebox_proof and oncebox_quarantine.
SELECT p.messages, p.unrouted, a.kept, a.stale
FROM (SELECT count(*) AS messages, count(*) FILTER (WHERE octet_length(handlers) = 0) AS unrouted FROM oncebox_proof WHERE inbox = $1) p,
     (SELECT count(*) AS kept, count(*) FILTER (WHERE reason = 'stale') AS stale FROM oncebox_quarantine WHERE inbox = $1) a;

-- name: admin_totals_tenant
-- Counts the same as `admin_totals` for one tenant.
-- $1 inbox smallint
-- $2 tenant text
-- Index: oncebox_proof_tenant; oncebox_quarantine is scanned.
SELECT p.messages, p.unrouted, a.kept, a.stale
FROM (SELECT count(*) AS messages, count(*) FILTER (WHERE octet_length(handlers) = 0) AS unrouted
      FROM oncebox_proof WHERE inbox = $1 AND tenant = $2) p,
     (SELECT count(*) AS kept, count(*) FILTER (WHERE reason = 'stale') AS stale
      FROM oncebox_quarantine WHERE inbox = $1 AND tenant = $2) a;

-- name: admin_unblock
-- Lets entries behind a poisoned entry run. Returns no row if it blocks none.
-- $1 seq bigint
-- $2 handler smallint
-- Index: primary key of oncebox_poisoned.
-- Lock order: the lock of the queue first, then the row of oncebox_poisoned.
UPDATE oncebox_poisoned SET in_line = 'skipped'
WHERE lane = $1 & 63 AND seq = $1 AND handler = $2 AND in_line IN ('blocks', 'parks')
RETURNING seq;
