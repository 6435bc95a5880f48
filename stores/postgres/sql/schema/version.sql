-- Reads the latest applied migration; 0 for none.
SELECT coalesce(max(version), 0) FROM oncebox_schema
