-- Makes room for new rows where others have gone. Neither waits for a lock nor takes one that anybody waits for: to give the room back
-- to the disk would, and it is needed again at once.
VACUUM (SKIP_LOCKED, TRUNCATE false) @entry
