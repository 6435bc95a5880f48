SELECT count, first, last FROM oncebox_absorbed WHERE seq = ?1
