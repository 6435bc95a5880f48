-- The latest generation only: what an operator can act on.
SELECT e.seq, e.handler, e.status, e.attempts, e.crashes, e.generation, e.at, NULL, e.error, NULL, m.digest
FROM oncebox_outcome e JOIN oncebox_handler h ON h.id = e.handler JOIN oncebox_message m ON m.seq = e.seq
WHERE h.inbox = ?1 AND (?2 IS NULL OR h.key = ?2) AND (e.seq, h.key) > (?3, ?4)
  AND (?6 IS NULL OR m.tenant = ?6) AND e.status = ?7
  AND NOT EXISTS (SELECT 1 FROM oncebox_outcome n WHERE n.seq = e.seq AND n.handler = e.handler AND n.generation > e.generation)
  AND NOT EXISTS (SELECT 1 FROM oncebox_entry n WHERE n.seq = e.seq AND n.handler = e.handler)
  AND NOT EXISTS (SELECT 1 FROM oncebox_running n WHERE n.seq = e.seq AND n.handler = e.handler)
  AND NOT EXISTS (SELECT 1 FROM oncebox_poisoned n WHERE n.seq = e.seq AND n.handler = e.handler)
ORDER BY e.seq, h.key LIMIT ?5
