"""Pages for people: the form behind a link with which a wait is answered. No scripts. Read `answer` first.

May import what `server` may, and no other room of it.
"""
