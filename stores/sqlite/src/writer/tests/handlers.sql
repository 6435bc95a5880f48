SELECT count(*) FROM oncebox_handler
