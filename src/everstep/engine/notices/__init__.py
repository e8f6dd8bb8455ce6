"""Decisions about notices. Read `rows`: stores go by it, and `sending` says what follows a try.

May import what `engine` may, and no other room of it.
"""
