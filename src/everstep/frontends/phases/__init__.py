"""Processes made of phases and scored gates, as flows. Read `phase`, then `build`.

May import what `frontends` may, and no other room of it.
"""
