"""What a log tells of signals, events and closed waits. Read `marks` first (which keys), then `tree`.

May import what `stores` may, and no other room of it.
"""
