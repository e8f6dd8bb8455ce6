"""Runs that nodes of other runs start, with `ctx.start`. Read `orders` first, which is what a record says of
a start; `admitting` makes the run of one, once; `starts` sees to it for one drive. May import what `runtime`
may.
"""
