-- Only by whoever knows what was noted last.
UPDATE oncebox_operation SET progress = $3, noted = noted + 1 WHERE id = $1 AND noted = $2
