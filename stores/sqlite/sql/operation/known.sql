SELECT body, answer FROM oncebox_operation WHERE id = ?1
