"""What does the work of a pipeline's nodes: commands of the system, models behind HTTP.

Read `shell` first. `processes` is the one place where a process is started, fed, read, and ended with all
that it started. May import what `frontends` may, and of its rooms `pipelines`.
"""
