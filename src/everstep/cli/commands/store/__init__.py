"""Commands about what is kept, and about carrying it elsewhere.

Read `export` first. May import what `cli` may, and of its rooms `args`, `view` and `live`.
"""
