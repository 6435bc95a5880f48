DELETE FROM oncebox_message WHERE seq = ?1
