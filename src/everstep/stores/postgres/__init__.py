"""The store on PostgreSQL.

Read `store` first. Puts are SQL functions that `migrations` create, everything else is in `queries.sql`;
`calls` is the hot path, `watch` hears of writes by LISTEN, `failures` says what errors mean. May import
what `stores` may, and no other room of it.
"""
