"""Undoing what a run did. Read `undoer` first, which the drive asks once its run undoes.

`arguments` reads from the chain what an undo is called with; `rules` say whether a run is undone, and what
may still be done with it. May import what `runtime` may, and of its rooms `drive.units`, `integrity` and
`travel`.
"""
