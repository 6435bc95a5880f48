-- Claims and settlements find every row by its key.
SET :scope enable_hashjoin = off;
-- What a sweep leaves out is looked up in memory, however large the server takes it for.
SET :scope work_mem = '16MB';
