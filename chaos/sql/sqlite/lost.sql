-- Ids of messages that failovers lost, as the store reports them. A file does not fail over.
SELECT NULL WHERE false
