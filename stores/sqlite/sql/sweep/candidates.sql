-- Oldest first, by sequence: receive times grow with it, unless the clock is set back.
SELECT seq, inbox, received_at, handlers FROM oncebox_message WHERE seq > ?1 ORDER BY seq LIMIT ?2
