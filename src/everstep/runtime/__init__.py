"""The only loops: drive one run, commit, renew leases. Calls user code; knows no store by name.

Read `runs` first: it starts, continues and cancels runs, and hands each to `drive`; `reader` reads them back,
`at_rest` writes to those without a drive. What only looks at runs gets the reader. The packages are what
is done with runs: `drive` them, let `workers` find them, open and settle their `waits`, keep their
`guards`, outlast an `outage`, make spans by `tracing`, `travel` in their past, check their `integrity`,
remove them by `retention`, carry them in `bundles`. May import errors, model, codec, graph, engine and ports.
"""
