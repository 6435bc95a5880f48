SELECT to_regclass('@schema') IS NOT NULL, to_regnamespace('":schema"') IS NOT NULL
