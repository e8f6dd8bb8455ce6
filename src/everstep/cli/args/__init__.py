"""From words on the command line to flows, hosts, runs and inputs. Read `loading` first.

May import what `cli` may, and no other room of it.
"""
