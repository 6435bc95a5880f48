-- Claims and settlements find every row by its key.
SET enable_hashjoin = off;
