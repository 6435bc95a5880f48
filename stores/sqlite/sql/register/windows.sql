SELECT handler, span, until FROM oncebox_window WHERE inbox = ?1
