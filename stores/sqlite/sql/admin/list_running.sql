SELECT e.seq, e.handler, 'running', e.attempts, e.crashes, e.generation, e.lease_until, NULL, e.error, NULL, m.digest
FROM oncebox_running e JOIN oncebox_handler h ON h.id = e.handler JOIN oncebox_message m ON m.seq = e.seq
WHERE h.inbox = ?1 AND (?2 IS NULL OR h.key = ?2) AND (e.seq, h.key) > (?3, ?4)
  AND (?6 IS NULL OR m.tenant = ?6)
ORDER BY e.seq, h.key LIMIT ?5
