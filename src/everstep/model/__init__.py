"""Frozen records, ids and enums: what a run is made of. No I/O, no clocks."""
