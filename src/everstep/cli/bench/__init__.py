"""`everstep bench`: what durable steps cost beside a raw store. Read `command` first."""
