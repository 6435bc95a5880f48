-- ?1 inbox, ?2 up to when, ?3 how many.
DELETE FROM oncebox_operation WHERE number IN (
    SELECT number FROM oncebox_operation WHERE inbox = ?1 AND at <= ?2 ORDER BY at LIMIT ?3
)
