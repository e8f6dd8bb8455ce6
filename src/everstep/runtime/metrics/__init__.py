"""Metrics, as Prometheus reads them. Read `meter` first.

Loaded by hosts that are asked for metrics; others have no meter, and pay for none. `meter` counts what is
done here, `store_view` has what was last seen of the store, `families` gives both names. May import what
`runtime` may, and of its rooms `operations` and `workers`.
"""
