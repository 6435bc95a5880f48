-- Counts the quarantined messages of an inbox, and the stale ones.
-- ?1 inbox
-- Index: none: it scans oncebox_quarantine.
SELECT count(*), count(*) FILTER (WHERE reason = 'stale') FROM oncebox_quarantine WHERE inbox = ?1
