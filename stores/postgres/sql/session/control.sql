-- Claims and settlements find every row by its key.
SET :scope enable_hashjoin = off;
