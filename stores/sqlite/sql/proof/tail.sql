-- What another process accepted, or what was accepted since the last merge. Range scan of the primary key.
SELECT seq, digest FROM oncebox_message WHERE seq > ?1
