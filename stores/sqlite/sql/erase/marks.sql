-- Takes the results out of the marks of a key. The condition counts every mark. ?1 key.
UPDATE oncebox_mark SET result = NULL WHERE digest = ?1
