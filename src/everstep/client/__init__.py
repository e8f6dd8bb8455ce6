"""The library's entry points: `AsyncHost`, `Host`, and what they return.

Read `host` first. `Host` is the same without awaiting, and has no logic of its own; `views` are the results.
May import everything below it, and stores only through the registry.
"""
