-- Creates log files with almost no content: 256 files of 16 MB are the 4 GB that the server may keep.
DO $$
BEGIN
    FOR file IN 1..256 LOOP
        PERFORM pg_logical_emit_message(false, 'bench', '');
        PERFORM pg_switch_wal();
    END LOOP;
END $$;
CHECKPOINT
