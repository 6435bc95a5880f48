-- Tables of a hand-written inbox: each key once, thin rows for the work, and a history. One index each.
CREATE TABLE message (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest bytea NOT NULL UNIQUE,
    received_at bigint NOT NULL,
    source text NOT NULL,
    id text NOT NULL,
    type text NOT NULL,
    payload bytea NOT NULL
);
CREATE TABLE work (
    seq bigint NOT NULL,
    handler smallint NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    lease_until bigint NOT NULL DEFAULT 0,
    token bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (seq, handler)
) WITH (fillfactor = 50);
CREATE TABLE outcome (
    seq bigint NOT NULL,
    handler smallint NOT NULL,
    attempts integer NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (seq, handler)
);
CREATE SEQUENCE token;
CREATE TABLE business (seq bigint, note text);
