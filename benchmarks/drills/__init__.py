"""Situations of a fleet in operation, tried with real processes and real servers; see `__main__.py`."""
