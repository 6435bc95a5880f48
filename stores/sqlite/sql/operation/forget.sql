-- Deletes operations up to a time.
-- ?1 inbox
-- ?2 at, last one to delete
-- ?3 limit
-- Index: oncebox_operation_age.
DELETE FROM oncebox_operation WHERE number IN (
    SELECT number FROM oncebox_operation WHERE inbox = ?1 AND at <= ?2 ORDER BY at LIMIT ?3
)
