-- Number of marks that failovers lost, as the store reports them. A file does not fail over.
SELECT 0
