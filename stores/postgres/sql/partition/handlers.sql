-- Lists the ids of all handlers.
-- Index: none: the table is small.
SELECT id FROM oncebox_handler
