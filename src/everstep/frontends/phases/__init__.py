"""Processes made of phases and scored gates, as flows. Read `phase`, then `build`."""
