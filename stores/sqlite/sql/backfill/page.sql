-- Stored messages in the order of acceptance, whatever inbox they are of.
SELECT seq, inbox, type, handlers, time FROM oncebox_message WHERE seq > ?1 ORDER BY seq LIMIT ?2
