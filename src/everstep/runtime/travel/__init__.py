"""The past of a run: `fork` from it, `replay` a step, `recall` values, `bisect` two runs; and its future:
`explain` what a resume would do, `migrate` to a changed flow. Nothing here drives a run.
"""
