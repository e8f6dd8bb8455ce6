"""From a flow to the plan that a run is driven by: nodes by number, who reads what, who waits for whom.

Read `plan` first. `blueprint` is a plan read back from a store, `renaming` an old plan in the words of a
new one. May import what `graph` may, and of its rooms `author` and `check`.
"""
