"""Waits: what a run halts for, from the step that opens one to the answer. Read `open`, then `answers`.

`announce` tells `notifiers` and `schedulers`; `tokens` lets outsiders answer; `delivery` takes messages of
timers, queues and `webhooks`. May import what `runtime` may, and of its rooms `drive`, `drive.children`,
`guards`, `metrics`, `operations`, `outage`, `waits.notices` and `workers`.
"""
