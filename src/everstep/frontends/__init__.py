"""Other ways to write a flow: pipelines in DOT, processes made of phases. They build flows.

`dot` reads the language, `pipelines` and `phases` make flows of it, `backends` do the work of pipelines'
nodes. Read `dot/parser` or `phases/phase` first. May import graph, model and errors, and of codec and
engine what flows are built with; nothing that runs one.
"""
