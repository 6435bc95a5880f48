-- Drops the rest of a partition. Rows of messages in `p_kept` stay.
CREATE FUNCTION oncebox_drop_partition_v1(
    p_partition bigint,
    -- Numbers of the messages that stay.
    p_kept bigint[]
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM oncebox_partition WHERE id = p_partition) THEN RETURN; END IF;
    -- Duplicates that were counted while a sweep deleted their message. No other statement deletes them.
    DELETE FROM oncebox_duplicate
    WHERE lane = ANY (ARRAY(SELECT generate_series(0, 63)::smallint))
      AND seq BETWEEN p_partition << 36 AND ((p_partition + 1) << 36) - 1 AND seq NOT IN (SELECT unnest(p_kept));
    PERFORM oncebox_drop_payload_v1(p_partition, p_kept);
    EXECUTE format('ALTER TABLE oncebox_outcome DETACH PARTITION oncebox_outcome_%s', p_partition);
    EXECUTE format('INSERT INTO oncebox_outcome SELECT * FROM oncebox_outcome_%s WHERE seq = ANY ($1) AND lane = seq & 63', p_partition)
        USING p_kept;
    EXECUTE format('DROP TABLE oncebox_outcome_%s', p_partition);
    DELETE FROM oncebox_partition WHERE id = p_partition;
END $body$;
REVOKE ALL ON FUNCTION oncebox_drop_partition_v1 FROM PUBLIC;
