-- name: orphans_oldest
-- Reads the due time of the first waiting entry of a handler.
-- ?1 handler
-- Index: oncebox_entry_due and oncebox_entry_order, one step each.
SELECT coalesce(
    (SELECT min(due) FROM oncebox_entry WHERE handler = ?1 AND due <> 9223372036854775807),
    (SELECT due FROM oncebox_entry WHERE handler = ?1 AND due = 9223372036854775807 LIMIT 1)
);

-- name: orphans_running
-- Counts the running entries of a handler, and reads the first due time and the last end of a lease.
-- ?1 handler
-- Index: none: the table is small.
SELECT count(*), min(due), max(lease_until) FROM oncebox_running WHERE handler = ?1;

-- name: orphans_waiting
-- Counts the waiting entries of a handler up to a limit: those with a due time, and those that wait for an earlier one.
-- ?1 handler
-- ?2 limit
-- Index: oncebox_entry_due and oncebox_entry_order.
SELECT count(*) FROM (
    SELECT 1 FROM oncebox_entry WHERE handler = ?1 AND due <> 9223372036854775807
    UNION ALL
    SELECT 1 FROM oncebox_entry WHERE handler = ?1 AND due = 9223372036854775807
    LIMIT ?2
);
