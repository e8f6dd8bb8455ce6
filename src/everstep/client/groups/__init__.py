"""Calls that few programs need: `host.retention`, `host.fleet` and so on, a module each.

A group is loaded when it is first used, and knows the host only by its `Parts`. Read `waiting` first. May
import what `client` may, and of its rooms `exports` and `looking`.
"""
