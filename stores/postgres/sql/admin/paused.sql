SELECT key FROM @handler WHERE inbox = $1 AND paused ORDER BY key COLLATE "C"
