"""Run folders, checkpoint sets and forms."""
