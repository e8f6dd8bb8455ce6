"""Frozen records, ids and enums: what a run is made of. No I/O, no clocks.

Read `records` first (checkpoint, step, value), then `waits` and `leases`. `durability`, `retry`, `budgets`,
`breakers` and `retention` are what users fill in. May import errors.
"""
