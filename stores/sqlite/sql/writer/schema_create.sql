-- Creates the table of applied migrations.
CREATE TABLE IF NOT EXISTS oncebox_schema (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT
