"""Asking a live worker what takes the code of a flow: a question is a run of a built-in flow.

Its name says whose code is needed, so that only workers with that flow claim it. Read `ask` first, which
asks and takes the answer away; `flow` is what a worker drives, `answers` what it answers with, here as there,
and `question` what is asked. May import what `runtime` may, and of its rooms `outage`, `retention` and
`travel`.
"""
