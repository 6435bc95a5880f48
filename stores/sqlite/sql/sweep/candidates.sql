-- Oldest first, by sequence: receive times grow with it, so the first young message ends the scan.
SELECT seq, inbox, received_at FROM oncebox_message WHERE seq > ?1 ORDER BY seq LIMIT ?2
