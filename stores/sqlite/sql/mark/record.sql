-- Once for each mark: who comes later changes nothing.
UPDATE oncebox_mark SET result = ?1 WHERE digest = ?2 AND handler = ?3 AND result IS NULL
