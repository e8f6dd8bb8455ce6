"""`redis:` keeps runs in Redis or Valkey, artifacts too. What must happen together is one script.

Read `store` first, then the scripts in `lua`. `link` holds the connections, `watch` hears of writes,
`beside` keeps channels and a queue for runs whose records are elsewhere. May import what `stores` may, and
no other room of it.
"""
