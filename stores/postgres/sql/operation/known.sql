SELECT body, reason, answer FROM @operation WHERE id = $1
