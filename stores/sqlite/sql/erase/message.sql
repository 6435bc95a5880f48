-- Deletes the content of a message. The row stays as the proof of its key, with the fingerprint of erased content.
-- ?1 seq
-- ?2 fingerprint of erased content
-- Index: primary key of oncebox_message.
UPDATE oncebox_message
SET fingerprint = ?2, time = NULL, source = '', id = x'', type = '', ordering_key = NULL, headers = x'', payload = x''
WHERE seq = ?1
