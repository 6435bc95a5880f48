-- The dedupe key, the fingerprint and the ordering key of a message, as docs/keys.md describes them, in PostgreSQL 11 or newer.
-- $1 inbox bytea, $2 tenant bytea or null, $3 source bytea, $4 id bytea, $5 type bytea, $6 payload bytea, $7 ordering key bytea
SELECT
    sha256(
        CASE WHEN $2::bytea IS NULL THEN '\x016b'::bytea ELSE '\x014b'::bytea END
        || int8send(octet_length($1::bytea)) || $1::bytea
        || coalesce(int8send(octet_length($2::bytea)) || $2::bytea, '')
        || int8send(octet_length($3::bytea)) || $3::bytea
        || int8send(2) || 'id'::bytea
        || int8send(octet_length($4::bytea)) || $4::bytea
    ) AS key,
    substr(sha256('\x0174'::bytea || int8send(octet_length($5::bytea)) || $5::bytea), 1, 4)
    || substr(
        sha256(
            '\x0166'::bytea
            || int8send(octet_length($5::bytea)) || $5::bytea
            || int8send(octet_length($6::bytea)) || $6::bytea
        ),
        5, 12
    ) AS fingerprint,
    substr(
        sha256(
            CASE WHEN $2::bytea IS NULL THEN '\x016f'::bytea ELSE '\x014f'::bytea END
            || int8send(octet_length($1::bytea)) || $1::bytea
            || coalesce(int8send(octet_length($2::bytea)) || $2::bytea, '')
            || int8send(octet_length($3::bytea)) || $3::bytea
            || int8send(octet_length($7::bytea)) || $7::bytea
        ),
        1, 16
    ) AS order_key
