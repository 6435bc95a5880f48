SELECT id, inbox, key, paused FROM oncebox_handler
