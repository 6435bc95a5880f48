-- Lists handler keys whose window never ends; an empty key stands for the inbox.
-- $1 inbox text
-- $2 span bigint: that stands for no end, in ms
-- Index: none: the table is small.
SELECT w.handler FROM oncebox_window w JOIN oncebox_inbox i ON i.id = w.inbox WHERE i.name = $1 AND w.span >= $2
