"""What a flow is: nodes, gates, edges, and the checks made when it is built. Runs nothing.

Read `author.flow` first. `author` is what users write, `compile` what is driven, `check` what may be wrong
with it, `draw` pictures, `ir` its JSON. May import errors, model and parts of codec.
"""
