SELECT id, name, watermark FROM oncebox_inbox
