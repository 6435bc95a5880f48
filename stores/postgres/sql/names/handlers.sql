SELECT id, inbox, key FROM @handler
