SELECT seq, inbox, received_at, handlers FROM oncebox_message WHERE seq = ?1
