SELECT ordering_key, source FROM oncebox_message WHERE seq = ?1
