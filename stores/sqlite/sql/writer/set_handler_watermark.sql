UPDATE oncebox_handler SET watermark = max(watermark, ?2) WHERE id = ?1
