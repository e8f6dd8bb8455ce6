"""Budgets and breakers while a run is driven. Read `budgets` first.

`breakers` are those of one run, `shared_breakers` those of all runs of a store. May import what `runtime`
may, and of its rooms `drive` and `workers`.
"""
