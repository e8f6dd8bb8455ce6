"""What is wrong, or odd, about a flow before it runs. Read `structure` (checked when it is built), then
`validate` (everything that can be said before it runs). `report` says how much of it survives a crash.

May import what `graph` may, and of its rooms `author`, `compile` and `ir`.
"""
