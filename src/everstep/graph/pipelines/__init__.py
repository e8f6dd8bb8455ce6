"""Pipelines written in DOT, as flows."""
