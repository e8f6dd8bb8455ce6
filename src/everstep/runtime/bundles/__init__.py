"""Runs that leave a store and come to another: `export` and `import_run` by way of a file, `copy`
directly.

`read_run` reads a whole run, `redaction` leaves values out, `untrusted` checks a file from anywhere,
`conflicts` says what a run meets where it goes. Read `export` first. May import what `runtime` may, and of
its rooms `outage`, `waits`, `workers`, `retention` and `operations`.
"""
