-- Counts the running entries of a handler, and reads the first due time and the last end of a lease.
-- ?1 handler
-- Index: none: the table is small.
SELECT count(*), min(due), max(lease_until) FROM oncebox_running WHERE handler = ?1
