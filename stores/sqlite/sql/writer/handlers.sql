SELECT id, inbox, key, paused, watermark FROM oncebox_handler
