SELECT id FROM @handler
