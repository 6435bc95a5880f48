-- Ids of all recorded operations.
SELECT hex(id) FROM oncebox_operation
