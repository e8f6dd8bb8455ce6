"""Pipelines written in DOT, as flows. Read `building` first: `reading` finds what each node does, `lint`
what is wrong, `lowering` makes the nodes of a flow; `stages` is what such a node does at a visit.

May import what `frontends` may, and of its rooms `dot` and `pipelines.lint`.
"""
