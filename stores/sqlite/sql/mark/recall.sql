SELECT result FROM oncebox_mark WHERE digest = ?1 AND handler = ?2
