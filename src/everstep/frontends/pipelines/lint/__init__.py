"""What is wrong, or odd, about a pipeline before it runs. Read `rules` first.

May import what `frontends` may, and of its rooms `dot`.
"""
