UPDATE oncebox_handler SET same_as = ?2 WHERE id = ?1
