"""`everstep demo`: a run that is killed and goes on. Read `flow`, an example, then `command`."""
