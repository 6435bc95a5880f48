-- Reads the requests of earlier operations that may name an id or an ordering key.
-- ?1 inbox
-- Index: oncebox_operation_age; reads all operations of the inbox.
SELECT number, body FROM oncebox_operation WHERE inbox = ?1 AND verb IN ('bulk', 'pause_key', 'resume_key')
