DELETE FROM oncebox_attempt WHERE seq = ?1
