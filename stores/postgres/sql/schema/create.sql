-- Creates the table of applied migrations.
CREATE TABLE IF NOT EXISTS oncebox_schema (version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())
