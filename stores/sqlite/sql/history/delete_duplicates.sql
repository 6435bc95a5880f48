DELETE FROM oncebox_duplicate WHERE seq = ?1
