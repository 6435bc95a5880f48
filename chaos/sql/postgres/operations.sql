SELECT id FROM oncebox_operation
