-- Keeps other transactions from the messages while a partition is dropped.
-- Lock order: oncebox_message exclusively, until the transaction ends.
LOCK TABLE oncebox_message IN ACCESS EXCLUSIVE MODE
