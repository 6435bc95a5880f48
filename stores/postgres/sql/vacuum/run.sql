-- Makes room for new rows where others have gone. Waits for no lock, and keeps nobody from reading or writing: to give the room back to
-- the disk would, and it is needed again at once.
VACUUM (SKIP_LOCKED, TRUNCATE false) oncebox_entry
