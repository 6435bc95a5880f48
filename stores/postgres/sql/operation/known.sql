SELECT body, answer FROM @operation WHERE id = $1
