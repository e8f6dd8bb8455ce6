"""Undoing what a run did: what an undo is given, which one comes next, and runs that no drive has.

`undoer` is asked by the drive once its run undoes; `arguments` reads from the chain what an undo is called
with. May import the drive, waits, and what reads old records.
"""
