SELECT count(*) FROM oncebox_aside WHERE inbox = ?1
