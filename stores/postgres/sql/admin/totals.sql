-- Messages, those of them without entries, messages quarantined, and the stale ones of them. $1 inbox.
SELECT p.messages, p.unrouted, a.kept, a.stale
FROM (SELECT count(*) AS messages, count(*) FILTER (WHERE octet_length(handlers) = 0) AS unrouted FROM oncebox_proof WHERE inbox = $1) p,
     (SELECT count(*) AS kept, count(*) FILTER (WHERE reason = 'stale') AS stale FROM oncebox_quarantine WHERE inbox = $1) a
