-- Creates one partition of each partitioned table. Runs with the rights of the role that migrated, so that the service
-- needs none.
CREATE FUNCTION oncebox_make_partition_v1(
    p_partition bigint
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    parent text;
BEGIN
    IF EXISTS (SELECT 1 FROM oncebox_partition WHERE id = p_partition) THEN RETURN; END IF;
    FOREACH parent IN ARRAY ARRAY['message', 'outcome'] LOOP
        -- Attached in a second step: creating it as a partition would block all readers.
        -- Inserts never trigger autovacuum, a good part of the work of a busy server: the partition is dropped whole.
        EXECUTE format('CREATE TABLE oncebox_%s_%s (LIKE oncebox_%s INCLUDING ALL) WITH (autovacuum_vacuum_insert_threshold = -1)',
            parent, p_partition, parent);
        EXECUTE format('ALTER TABLE oncebox_%s ATTACH PARTITION oncebox_%s_%s FOR VALUES FROM (%s) TO (%s)',
            parent, parent, p_partition, p_partition << 36, (p_partition + 1) << 36);
    END LOOP;
    INSERT INTO oncebox_partition (id) VALUES (p_partition);
END $body$;
REVOKE ALL ON FUNCTION oncebox_make_partition_v1 FROM PUBLIC;
