-- Reads messages that other processes accepted, or that are newer than the last merge.
-- ?1 seq to continue after
-- Index: primary key of oncebox_message.
SELECT seq, digest FROM oncebox_message WHERE seq > ?1
