-- The business table of the rig. Nothing in it prevents a second row.
PRAGMA journal_mode = WAL;
CREATE TABLE chaos_effect (id INTEGER PRIMARY KEY, m INTEGER NOT NULL, v INTEGER NOT NULL, h TEXT NOT NULL, life INTEGER NOT NULL);
