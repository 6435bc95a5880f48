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
ORDER BY e.seq, h.key, e.generation DESC LIMIT ?4
