-- name: handlers
SELECT count(*) FROM oncebox_handler;

-- name: mine
CREATE TEMP TABLE mine (id);
