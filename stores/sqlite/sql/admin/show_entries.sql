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
ORDER BY h.key, e.generation
