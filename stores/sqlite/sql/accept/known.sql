SELECT fingerprint, handlers, received_at FROM oncebox_message WHERE seq = ?1
