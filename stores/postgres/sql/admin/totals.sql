-- Counts the messages of an inbox, those without entries, the quarantined messages, and the stale ones of these.
-- $1 inbox smallint
-- Index: none: it scans oncebox_proof and oncebox_quarantine.
SELECT p.messages, p.unrouted, a.kept, a.stale
FROM (SELECT count(*) AS messages, count(*) FILTER (WHERE octet_length(handlers) = 0) AS unrouted FROM oncebox_proof WHERE inbox = $1) p,
     (SELECT count(*) AS kept, count(*) FILTER (WHERE reason = 'stale') AS stale FROM oncebox_quarantine WHERE inbox = $1) a
