"""A store that does not answer: asked again by `store_retry`, or its commits kept on this machine.

Read `outbox` first; `spool` are the files, `spooled_view` shows a run as it will be once they are written.
May import what `runtime` may, and of its rooms `drive` and `operations`.
"""
