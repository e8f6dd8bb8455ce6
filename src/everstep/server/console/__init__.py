"""The console: runs, flows and workers in a browser, live.

Read `pages` first: the one page there is, logging in, and the files it loads. The views are ES modules in
`assets`, which ask the public HTTP API for everything; `assets/vendor` holds the one library they use,
unmodified. May import what `server` may, and of its rooms `access`.
"""
