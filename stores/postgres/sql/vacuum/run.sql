-- Frees the space of dead rows for new ones. Waits for no lock, and blocks no reader or writer. TRUNCATE would block
-- them, and the space is needed again at once.
VACUUM (SKIP_LOCKED, TRUNCATE false) oncebox_entry
