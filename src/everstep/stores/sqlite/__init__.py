"""`sqlite:` keeps runs in one file, with artifacts in a folder beside it.

Read `store` first. SQL is in `queries.sql`, the schema in `migrations`, the file itself in `database`;
`records`, `waits`, `claims` and `listing` have the calls of a table each.
May import what `stores` may, and no other room of it.
"""
