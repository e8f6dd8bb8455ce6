"""Telling people and systems of runs that fail, halt or take too long, and of waits again. Read `send`.

`told` says who is told, when a run is admitted; `content` makes of a row what is sent, `words` what people
read, `mail` and `chat` are notifiers. May import what `runtime` may, and of its rooms `drive`.
"""
