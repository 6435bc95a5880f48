-- Handler keys whose window has no end; an empty one for the inbox. $1 inbox, $2 the length of what has none.
SELECT w.handler FROM oncebox_window w JOIN oncebox_inbox i ON i.id = w.inbox WHERE i.name = $1 AND w.span >= $2
