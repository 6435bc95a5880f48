DELETE FROM oncebox_absorbed WHERE seq = ?1
