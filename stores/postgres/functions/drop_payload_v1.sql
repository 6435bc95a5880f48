-- Drops the messages of a partition in constant time. Those in `p_kept` stay.
CREATE FUNCTION oncebox_drop_payload_v1(
    p_partition bigint,
    -- Numbers of the messages that stay.
    p_kept bigint[]
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    -- Another process may have dropped it since it was listed.
    IF NOT EXISTS (SELECT 1 FROM oncebox_partition WHERE id = p_partition AND payload) THEN RETURN; END IF;
    EXECUTE format('ALTER TABLE oncebox_message DETACH PARTITION oncebox_message_%s', p_partition);
    EXECUTE format('INSERT INTO oncebox_message SELECT * FROM oncebox_message_%s WHERE seq = ANY ($1) AND lane = seq & 63', p_partition)
        USING p_kept;
    EXECUTE format('DROP TABLE oncebox_message_%s', p_partition);
    UPDATE oncebox_partition SET payload = false WHERE id = p_partition;
END $body$;
REVOKE ALL ON FUNCTION oncebox_drop_payload_v1 FROM PUBLIC;
