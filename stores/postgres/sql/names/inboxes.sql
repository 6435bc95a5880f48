SELECT id, name FROM oncebox_inbox
