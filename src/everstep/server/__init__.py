"""The HTTP service: runs, waits and answers over a host. Needs the extra `web`, and loads when asked for.

Read `routes` first: the table of every endpoint. `api` has what programs call, `pages` what people see;
`app` puts a guard, a log line and named errors around every handler, `serving` listens. May import client,
results, graph and model; a store only through a host.
"""
