"""Other ways to write a flow: pipelines in DOT, processes made of phases. They build flows.

`dot` reads the language, `pipelines` and `phases` make flows of it, `backends` do the work of pipelines'
nodes.
"""
