UPDATE oncebox_operation SET answer = $2 WHERE id = $1
