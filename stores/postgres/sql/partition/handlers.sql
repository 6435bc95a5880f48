SELECT id FROM oncebox_handler
