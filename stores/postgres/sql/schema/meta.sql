-- Reads what all processes of the store share: the number of lanes, and the identity of the tables.
SELECT lanes, incarnation FROM oncebox_meta
