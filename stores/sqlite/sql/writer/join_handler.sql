-- Joins a handler with another one that it turned out to be.
-- ?1 handler
-- ?2 handler that it joins
-- Index: primary key of oncebox_handler.
UPDATE oncebox_handler SET same_as = ?2 WHERE id = ?1
