-- Pauses or resumes a handler.
-- $1 handler smallint
-- $2 paused boolean
-- Index: primary key of oncebox_handler.
-- Lock order: the row of oncebox_handler.
UPDATE oncebox_handler SET paused = $2 WHERE id = $1 AND paused <> $2
