"""Decisions without side effects: the same state and event always give the same answer."""
