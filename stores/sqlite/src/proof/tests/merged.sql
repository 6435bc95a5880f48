SELECT merged FROM oncebox_counter
