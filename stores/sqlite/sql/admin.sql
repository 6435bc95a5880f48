-- name: admin_add_outcome
-- Records the outcome of an entry that no claim holds.
-- ?1 seq
-- ?2 handler
-- ?3 generation
-- ?4 status
-- ?5 token
-- ?6 now
-- ?7 attempts
-- ?8 crashes
-- ?9 error or NULL
INSERT INTO oncebox_outcome (seq, handler, generation, status, token, at, attempts, crashes, error)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9);

-- name: admin_behind
-- Counts the entries behind a poisoned entry that blocks its order key, and reads the receive time of the first. All of
-- them wait: none is released behind it.
-- ?1 handler
-- ?2 order_key
-- ?3 seq of the poisoned entry
-- Index: primary key of oncebox_line, oncebox_entry_order, oncebox_poisoned_order.
WITH behind (seq) AS (
    SELECT e.seq FROM oncebox_line l CROSS JOIN oncebox_entry e ON e.handler = l.handler AND e.line = l.number
    WHERE l.handler = ?1 AND l.order_key = ?2 AND e.due = 9223372036854775807 AND e.seq > ?3
    UNION ALL
    SELECT seq FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND in_line = 'parked' AND seq > ?3
)
SELECT count(*), (SELECT received_at FROM oncebox_message WHERE seq = (SELECT min(seq) FROM behind)) FROM behind;

-- name: admin_blocked
-- Lists order keys that a poisoned entry blocks, oldest first: a row per handler and order key.
-- ?1 inbox
-- ?2 limit
-- ?3 tenant or NULL
-- Index: oncebox_poisoned_order.
SELECT e.seq, e.handler, e.at, e.in_line = 'parks', e.order_key, m.digest, m.ordering_key
FROM oncebox_poisoned e JOIN oncebox_handler h ON h.id = e.handler LEFT JOIN oncebox_message m ON m.seq = e.seq
WHERE h.inbox = ?1 AND e.seq > 0 AND e.in_line IN ('blocks', 'parks') AND NOT EXISTS (
    SELECT 1 FROM oncebox_poisoned b
    WHERE b.handler = e.handler AND b.order_key = e.order_key AND b.in_line IN ('blocks', 'parks') AND b.seq < e.seq AND b.seq > 0
) AND (?3 IS NULL OR m.tenant = ?3)
ORDER BY e.seq, h.key LIMIT ?2;

-- name: admin_count_finished
-- Counts outcomes by handler and status.
-- Index: none: it scans oncebox_outcome.
SELECT handler, status, count(*) FROM oncebox_outcome GROUP BY handler, status;

-- name: admin_count_messages
-- Counts the messages of an inbox, and those without entries.
-- ?1 inbox
-- Index: none: it scans oncebox_message.
SELECT count(*), count(*) FILTER (WHERE length(handlers) = 0) FROM oncebox_message WHERE inbox = ?1;

-- name: admin_count_pending
-- Counts pending entries by handler.
-- Index: oncebox_entry_due and oncebox_entry_order, which together have every entry.
SELECT handler, sum(waiting) FROM (
    SELECT handler, count(*) AS waiting FROM oncebox_entry WHERE due <> 9223372036854775807 GROUP BY handler
    UNION ALL
    SELECT handler, count(*) FROM oncebox_entry WHERE due = 9223372036854775807 GROUP BY handler
) GROUP BY handler;

-- name: admin_count_poisoned
-- Counts poisoned entries by handler. The row of a paused order key has a negative number.
-- Index: none: it scans oncebox_poisoned.
SELECT handler, count(*) FROM oncebox_poisoned WHERE seq > 0 GROUP BY handler;

-- name: admin_count_quarantine
-- Counts the quarantined messages of an inbox, and the stale ones.
-- ?1 inbox
-- Index: none: it scans oncebox_quarantine.
SELECT count(*), count(*) FILTER (WHERE reason = 'stale') FROM oncebox_quarantine WHERE inbox = ?1;

-- name: admin_count_replayed
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
GROUP BY o.handler, o.status;

-- name: admin_count_running
-- Counts running entries by handler.
-- Index: none: the table is small.
SELECT handler, count(*) FROM oncebox_running GROUP BY handler;

-- name: admin_count_tenant
-- Counts the entries of one tenant by handler and status. Only the latest generation of a replayed entry counts.
-- ?1 inbox
-- ?2 tenant
-- Index: oncebox_message_tenant, then the primary keys of the tables of entries.
WITH theirs AS MATERIALIZED (
    SELECT seq FROM oncebox_message WHERE tenant = ?2 AND inbox = ?1
), running AS MATERIALIZED (
    SELECT seq, handler FROM oncebox_running
)
SELECT e.handler, 'pending', count(*) FROM theirs t CROSS JOIN oncebox_entry e ON e.seq = t.seq GROUP BY e.handler
UNION ALL
SELECT handler, 'running', count(*) FROM running WHERE seq IN (SELECT seq FROM theirs) GROUP BY handler
UNION ALL
SELECT e.handler, 'poisoned', count(*) FROM theirs t CROSS JOIN oncebox_poisoned e ON e.seq = t.seq GROUP BY e.handler
UNION ALL
SELECT e.handler, e.status, count(*) FROM theirs t CROSS JOIN oncebox_outcome e ON e.seq = t.seq
WHERE NOT EXISTS (SELECT 1 FROM oncebox_outcome n WHERE n.seq = e.seq AND n.handler = e.handler AND n.generation > e.generation)
  AND NOT EXISTS (SELECT 1 FROM oncebox_entry n WHERE n.seq = e.seq AND n.handler = e.handler)
  AND NOT EXISTS (SELECT 1 FROM oncebox_poisoned n WHERE n.seq = e.seq AND n.handler = e.handler)
  AND NOT EXISTS (SELECT 1 FROM running n WHERE n.seq = e.seq AND n.handler = e.handler)
GROUP BY e.handler, e.status;

-- name: admin_list
-- Lists entries after a position, by number and handler. Reads at most ?4 entries of each kind, whatever the filter. The
-- caller filters by everything but the status.
-- ?1 seq to continue after
-- ?2 handler key to continue after
-- ?3 statuses, JSON
-- ?4 limit
-- Index: the primary keys of the tables of entries.
WITH wanted (status) AS MATERIALIZED (SELECT value FROM json_each(?3)),
looked (seq, handler, status, attempts, crashes, generation, at, reason, error, in_line) AS MATERIALIZED (
    SELECT * FROM (
        SELECT e.seq, e.handler, 'pending', e.attempts, e.crashes, e.generation, e.due, NULL, e.error, NULL
        FROM oncebox_entry e JOIN oncebox_handler h ON h.id = e.handler
        WHERE 'pending' IN (SELECT status FROM wanted) AND e.seq >= ?1 AND (e.seq > ?1 OR h.key > ?2)
        ORDER BY e.seq, h.key LIMIT ?4
    )
    UNION ALL
    SELECT seq, handler, 'running', attempts, crashes, generation, lease_until, NULL, error, NULL
    FROM oncebox_running WHERE 'running' IN (SELECT status FROM wanted) AND seq >= ?1
    UNION ALL
    SELECT * FROM (
        SELECT e.seq, e.handler, 'poisoned', e.attempts, e.crashes, e.generation, e.at, e.reason, e.error, e.in_line
        FROM oncebox_poisoned e JOIN oncebox_handler h ON h.id = e.handler
        WHERE 'poisoned' IN (SELECT status FROM wanted) AND e.seq >= ?1 AND (e.seq > ?1 OR h.key > ?2)
        ORDER BY e.seq, h.key LIMIT ?4
    )
    UNION ALL
    SELECT * FROM (
        SELECT e.seq, e.handler, e.status, e.attempts, e.crashes, e.generation, e.at, NULL, e.error, NULL
        FROM oncebox_outcome e JOIN oncebox_handler h ON h.id = e.handler
        WHERE EXISTS (SELECT 1 FROM wanted WHERE status IN ('completed', 'discarded')) AND e.seq >= ?1 AND (e.seq > ?1 OR h.key > ?2)
        ORDER BY e.seq, h.key, e.generation DESC LIMIT ?4
    )
)
SELECT e.seq, e.handler, e.status, e.attempts, e.crashes, e.generation, e.at, e.reason, e.error, e.in_line,
       m.digest, m.received_at, m.tenant, m.source, m.id, m.type, m.ordering_key,
       e.status IN ('completed', 'discarded') AND (
           EXISTS (SELECT 1 FROM oncebox_outcome n WHERE n.seq = e.seq AND n.handler = e.handler AND n.generation > e.generation)
           OR EXISTS (SELECT 1 FROM oncebox_entry n WHERE n.seq = e.seq AND n.handler = e.handler)
           OR EXISTS (SELECT 1 FROM oncebox_running n WHERE n.seq = e.seq AND n.handler = e.handler)
           OR EXISTS (SELECT 1 FROM oncebox_poisoned n WHERE n.seq = e.seq AND n.handler = e.handler)
       ), m.fingerprint
FROM looked e JOIN oncebox_handler h ON h.id = e.handler LEFT JOIN oncebox_message m ON m.seq = e.seq
WHERE e.seq > ?1 OR h.key > ?2
ORDER BY e.seq, h.key, e.generation DESC LIMIT ?4;

-- name: admin_list_quarantine
-- Lists quarantined messages of an inbox. SQLite knows the length of a payload without reading it.
-- ?1 inbox
-- ?2 reason or NULL
-- ?3 id to continue after
-- ?4 limit
-- ?5 tenant or NULL
-- Index: primary key of oncebox_quarantine.
SELECT id, reason, received_at, digest, tenant, source, message_id, type, ordering_key, length(payload)
FROM oncebox_quarantine WHERE inbox = ?1 AND (?2 IS NULL OR reason = ?2) AND id > ?3 AND (?5 IS NULL OR tenant = ?5)
ORDER BY id LIMIT ?4;

-- name: admin_paused_keys
-- Lists order keys that an operator paused. Their rows have negative numbers.
-- Index: primary key of oncebox_poisoned.
SELECT handler, error FROM oncebox_poisoned WHERE seq < 0;

-- name: admin_purge_quarantine
-- Deletes quarantined messages up to a receive time.
-- ?1 inbox
-- ?2 received_at, last one to delete
-- ?3 limit
-- Index: primary key of oncebox_quarantine.
DELETE FROM oncebox_quarantine
WHERE id IN (SELECT id FROM oncebox_quarantine WHERE inbox = ?1 AND received_at <= ?2 ORDER BY id LIMIT ?3);

-- name: admin_remove_pending
-- Deletes a pending entry. Returns its order key.
-- ?1 seq
-- ?2 handler
-- Index: primary key of oncebox_entry.
DELETE FROM oncebox_entry WHERE seq = ?1 AND handler = ?2 RETURNING order_key;

-- name: admin_remove_poisoned
-- Deletes a poisoned entry. Returns its order key.
-- ?1 seq
-- ?2 handler
-- Index: primary key of oncebox_poisoned.
DELETE FROM oncebox_poisoned WHERE seq = ?1 AND handler = ?2 RETURNING order_key;

-- name: admin_set_paused
-- Pauses or resumes a handler.
-- ?1 handler
-- ?2 paused, 0 or 1
-- Index: primary key of oncebox_handler.
UPDATE oncebox_handler SET paused = ?2 WHERE id = ?1;

-- name: admin_show_entries
-- Lists all entries and outcomes of one message, by handler key, then generation.
-- ?1 seq
-- Index: the primary keys of the tables of entries.
SELECT e.seq, e.handler, e.status, e.attempts, e.crashes, e.generation, e.at, e.reason, e.error, e.in_line
FROM (
    SELECT seq, handler, 'pending' AS status, attempts, crashes, generation, due AS at, NULL AS reason, error, NULL AS in_line
    FROM oncebox_entry WHERE seq = ?1
    UNION ALL
    SELECT seq, handler, 'running', attempts, crashes, generation, lease_until, NULL, error, NULL FROM oncebox_running WHERE seq = ?1
    UNION ALL
    SELECT seq, handler, 'poisoned', attempts, crashes, generation, at, reason, error, in_line FROM oncebox_poisoned WHERE seq = ?1
    UNION ALL
    SELECT seq, handler, status, attempts, crashes, generation, at, NULL, error, NULL FROM oncebox_outcome WHERE seq = ?1
) e JOIN oncebox_handler h ON h.id = e.handler
ORDER BY h.key, e.generation;

-- name: admin_show_message
-- Reads a message.
-- ?1 seq
-- ?2 inbox
-- Index: primary key of oncebox_message.
SELECT digest, received_at, time, tenant, source, id, type, ordering_key, headers, payload, fingerprint
FROM oncebox_message WHERE seq = ?1 AND inbox = ?2;

-- name: admin_show_quarantine
-- Reads the quarantined messages of a key, with their payloads.
-- ?1 digest
-- ?2 inbox
-- ?3 limit
-- Index: unique (digest, fingerprint) of oncebox_quarantine.
SELECT reason, received_at, time, tenant, source, message_id, type, ordering_key, headers, payload
FROM oncebox_quarantine WHERE digest = ?1 AND inbox = ?2 ORDER BY id LIMIT ?3;

-- name: admin_totals_tenant
-- Counts the messages of one tenant, those without entries, the quarantined messages, and the stale ones of these.
-- ?1 inbox
-- ?2 tenant
-- Index: oncebox_message_tenant; oncebox_quarantine is scanned.
SELECT (SELECT count(*) FROM oncebox_message WHERE tenant = ?2 AND inbox = ?1),
       (SELECT count(*) FROM oncebox_message WHERE tenant = ?2 AND inbox = ?1 AND length(handlers) = 0),
       (SELECT count(*) FROM oncebox_quarantine WHERE tenant = ?2 AND inbox = ?1),
       (SELECT count(*) FROM oncebox_quarantine WHERE tenant = ?2 AND inbox = ?1 AND reason = 'stale');

-- name: admin_unblock
-- Lets entries behind a poisoned entry run. Returns its order key.
-- ?1 seq
-- ?2 handler
-- Index: primary key of oncebox_poisoned.
UPDATE oncebox_poisoned SET in_line = 'skipped' WHERE seq = ?1 AND handler = ?2 RETURNING order_key;
