-- Ids of all recorded operations.
SELECT id FROM oncebox_operation
