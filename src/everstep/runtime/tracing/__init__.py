"""Spans for OpenTelemetry. Read `spans` first.

Loaded by hosts that trace. May import what `runtime` may, OpenTelemetry's API, and of its rooms `live`.
"""
