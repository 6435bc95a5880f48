-- Hand-written tables for the limit: what the store keeps of a message, without its bookkeeping.
PRAGMA journal_mode = wal;
PRAGMA synchronous = full;
PRAGMA wal_autocheckpoint = 8192;
PRAGMA cache_size = -65536;
CREATE TABLE message (
    seq INTEGER PRIMARY KEY, digest BLOB, fingerprint BLOB, received_at INTEGER, source TEXT, id BLOB, type TEXT, payload BLOB
);
CREATE TABLE proof (digest BLOB PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE entry (
    handler INTEGER, due INTEGER, seq INTEGER, attempts INTEGER, crashes INTEGER, token INTEGER, lease INTEGER,
    PRIMARY KEY (handler, due, seq)
) WITHOUT ROWID;
CREATE INDEX entry_seq ON entry (seq);
