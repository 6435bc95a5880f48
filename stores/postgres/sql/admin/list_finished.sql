-- The latest generation only: what an operator can act on. The same values as for unfinished ones.
SELECT e.seq, h.key, e.status, e.attempts, e.crashes, e.generation, e.at, NULL::text, e.error, NULL::text, p.digest
FROM @outcome e JOIN @handler h ON h.id = e.handler JOIN @proof p ON p.seq = e.seq
WHERE h.inbox = $1 AND ($2::text IS NULL OR h.key = $2) AND e.seq >= $3 AND (e.seq > $3 OR h.key COLLATE "C" > $4)
  AND e.status = $6 AND ($7::text IS NULL OR p.tenant = $7)
  AND NOT EXISTS (SELECT 1 FROM @outcome n
      WHERE n.lane = e.lane AND n.seq = e.seq AND n.handler = e.handler AND n.generation > e.generation)
  AND NOT EXISTS (SELECT 1 FROM @later n WHERE n.lane = e.lane AND n.seq = e.seq AND n.handler = e.handler)
  AND NOT EXISTS (SELECT 1 FROM @entry n WHERE n.lane = e.lane AND n.seq = e.seq AND n.handler = e.handler)
  AND NOT EXISTS (SELECT 1 FROM @poisoned n WHERE n.lane = e.lane AND n.seq = e.seq AND n.handler = e.handler)
ORDER BY e.seq, h.key COLLATE "C" LIMIT $5
