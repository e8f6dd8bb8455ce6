"""What does the work of a pipeline's nodes: commands of the system, models behind HTTP."""
