"""Processes made of phases and scored gates, as flows."""
