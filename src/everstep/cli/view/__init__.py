"""How runs, steps and values look on a terminal. Knows no command. Read `text` first.

May import what `cli` may, and of its rooms `args`.
"""
