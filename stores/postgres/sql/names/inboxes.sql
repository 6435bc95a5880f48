SELECT id, name FROM @inbox
