SELECT hex(id) FROM oncebox_operation
