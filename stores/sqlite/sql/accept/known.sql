SELECT fingerprint, handlers FROM oncebox_message WHERE seq = ?1
