"""The HTTP service: runs, waits and answers over a host. Needs the extra `web`, and loads when asked for."""
