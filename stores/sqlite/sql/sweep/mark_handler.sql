-- Finds the next handler that has marks.
-- ?1 inbox
-- ?2 handler key to continue after
-- Index: oncebox_mark_age, one step.
SELECT min(handler) FROM oncebox_mark WHERE inbox = ?1 AND handler > ?2
