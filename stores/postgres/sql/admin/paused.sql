SELECT key FROM oncebox_handler WHERE inbox = $1 AND paused ORDER BY key COLLATE "C"
