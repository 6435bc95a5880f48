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
GROUP BY e.handler, e.status
