SELECT coalesce(max(version), 0) FROM oncebox_schema
