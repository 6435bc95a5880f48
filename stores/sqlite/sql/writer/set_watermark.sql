UPDATE oncebox_inbox SET watermark = max(watermark, ?2) WHERE id = ?1
