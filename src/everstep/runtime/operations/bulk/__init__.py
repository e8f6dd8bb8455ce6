"""One act on many runs, as a run of a built-in flow that every worker knows.

Read `flow` first, which goes over the runs page by page; `order` is what it is given, `acts` does it to one
run, and `verdict` decides what is to be done. May import what `runtime` may, and of its rooms `retention`
and `travel`.
"""
