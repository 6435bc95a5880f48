-- Pauses or resumes a handler.
-- ?1 handler
-- ?2 paused, 0 or 1
-- Index: primary key of oncebox_handler.
UPDATE oncebox_handler SET paused = ?2 WHERE id = ?1
