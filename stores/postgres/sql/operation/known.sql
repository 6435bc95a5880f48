SELECT body, reason, answer FROM oncebox_operation WHERE id = $1
