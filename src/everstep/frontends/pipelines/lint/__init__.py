"""Lint."""
