-- Creates the schema.
CREATE SCHEMA IF NOT EXISTS ":schema"
