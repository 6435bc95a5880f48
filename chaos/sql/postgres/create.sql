-- The business table of the rig. Nothing in it prevents a second row.
CREATE TABLE chaos_effect (id bigint GENERATED ALWAYS AS IDENTITY, m bigint NOT NULL, v smallint NOT NULL, h text NOT NULL, life bigint NOT NULL)
