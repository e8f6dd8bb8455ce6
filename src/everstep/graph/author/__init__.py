"""What flows are written with: `Flow`, `@node` and gates, subflows, waits, the context and the channel.

Read `node`, then `wiring` and `flow`. `options` is the table of every option and what becomes of it where.
May import what `graph` may, and of its rooms `check`, `compile` and `ir`.
"""
