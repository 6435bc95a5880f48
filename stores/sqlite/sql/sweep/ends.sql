-- When each entry of a message was finished.
SELECT handler, at FROM oncebox_outcome WHERE seq = ?1
