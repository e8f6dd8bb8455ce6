"""What the runtime needs from the outside, as protocols.

Read `store` first: what every store must do. `system` is time, ids and processes, `durability` the services
behind waits, `retention` and `restoring` what removes runs and takes whole ones. May import errors and model.
"""
