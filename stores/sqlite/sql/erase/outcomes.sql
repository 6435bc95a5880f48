-- Takes the errors out of what was finished. ?1 number.
UPDATE oncebox_outcome SET error = NULL WHERE seq = ?1 AND error IS NOT NULL
