DELETE FROM oncebox_outcome WHERE seq = ?1
