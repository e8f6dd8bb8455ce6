"""A repository on GitHub, or on a server with the same API, as a place for named bytes.

Read `bucket` first. `api` makes the calls, `quota` counts how many are left, `commits` writes many files at
once, `parts` splits what is too large for one. May import what `stores` may, and no other room of it.
"""
