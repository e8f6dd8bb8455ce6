"""The commands, in groups, a module each or for few that belong together; `main` says which has which.

Read `runs/run` first. May import what `cli` may, and no other room of it.
"""
