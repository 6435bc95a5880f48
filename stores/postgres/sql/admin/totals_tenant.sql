-- Counts the same as `totals` for one tenant.
-- $1 inbox smallint
-- $2 tenant text
-- Index: oncebox_proof_tenant; oncebox_quarantine is scanned.
SELECT p.messages, p.unrouted, a.kept, a.stale
FROM (SELECT count(*) AS messages, count(*) FILTER (WHERE octet_length(handlers) = 0) AS unrouted
      FROM oncebox_proof WHERE inbox = $1 AND tenant = $2) p,
     (SELECT count(*) AS kept, count(*) FILTER (WHERE reason = 'stale') AS stale
      FROM oncebox_quarantine WHERE inbox = $1 AND tenant = $2) a
