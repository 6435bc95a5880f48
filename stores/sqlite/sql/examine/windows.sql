SELECT w.handler FROM oncebox_window w JOIN oncebox_inbox i ON i.id = w.inbox WHERE i.name = ?1 AND w.span >= ?2
