-- One process at a time links keys. Those that read them are not kept waiting.
LOCK TABLE oncebox_handler_key IN SHARE ROW EXCLUSIVE MODE
