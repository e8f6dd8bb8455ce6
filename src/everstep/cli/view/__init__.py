"""How runs, steps and values look on a terminal. Knows no command. Read `tree` and `text` first."""
