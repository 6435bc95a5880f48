UPDATE oncebox_handler SET key = ?2 WHERE id = ?1
