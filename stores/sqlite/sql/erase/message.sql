-- Takes the content out of a message. The row stays as the proof of its key; ?2, in place of the fingerprint, says that.
-- ?1 number, ?2 fingerprint of what is erased.
UPDATE oncebox_message
SET fingerprint = ?2, time = NULL, source = '', id = x'', type = '', ordering_key = NULL, headers = x'', payload = x''
WHERE seq = ?1
