-- Lets one process at a time link keys. Readers do not wait.
-- Lock order: oncebox_handler_key as a whole, until the transaction ends.
LOCK TABLE oncebox_handler_key IN SHARE ROW EXCLUSIVE MODE
