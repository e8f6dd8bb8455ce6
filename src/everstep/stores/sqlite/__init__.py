"""`sqlite:` keeps runs in one file, with artifacts in a folder beside it.

Read `store` first. SQL is in `queries.sql`, the schema in `migrations`; `records`, `waits`, `claims` and
`workers` are the tables. May import what `stores` may, and no other room of it.
"""
