UPDATE oncebox_message SET handlers = ?2 WHERE seq = ?1
