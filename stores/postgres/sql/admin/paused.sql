-- Lists the paused handlers of an inbox.
-- $1 inbox smallint
-- Index: none: the table is small.
SELECT key FROM oncebox_handler WHERE inbox = $1 AND paused ORDER BY key COLLATE "C"
