"""Pages for people, behind the link of a wait. No scripts. Read `answer` first.

May import what `server` may, and no other room of it.
"""
