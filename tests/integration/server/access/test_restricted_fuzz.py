"""Whatever a token for some runs asks for, nothing of the others is in any answer."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

from everstep import Flow, node, wait
from everstep.server.access.roles import Reach, Role
from everstep.server.endpoint import Guard
from everstep.server.routes import ENDPOINTS
from tests.integration.server.access.named_callers import bearer, entry, named
from tests.integration.server.serving import ask_text, plain

ROUNDS = 5000 if os.environ.get("EVERSTEP_SOAK") == "1" else 250
SEED = int(os.environ.get("EVERSTEP_SEED") or 3)
CANARY = "c4n4ry"
"""In every name and value of what the tokens do not see, but for ids that are asked for."""
HIDDEN = ["hidden-1", "hidden-2"]


@node(output="said")
def say(word: str) -> str:
    return word


secret = Flow(f"{CANARY}_flow", [say, wait.question(f"{CANARY}_ask", kind="text", prompt=CANARY)])
WORDS = [
    *("", "hidden-1", "hidden-2", "seen-1", "seen-2", "hidden-1/say", "hidden-1@1", "seen-1%2Fx", "nowhere"),
    *("status", "flow", "group", "tag", "tag.team", "attribute.word", "error", "parent", "owner", "true"),
    *("id = hidden-1", "id starts_with h", "status is set", "not (tag = vip)", "tag.team is set", "1", "0.0"),
    *("parent = hidden-1", "id = hidden-1 or tag = vip", "halted", "open", "settled", "-1d", "plain", "1000"),
]
ASKED = [
    *("where", "by", "tag", "attribute", "flow", "status", "parent", "before", "after", "run_id"),
    *("kind", "labels"),
]


LISTS = [e for e in ENDPOINTS if e.reach is Reach.FLOWS and e.method == "GET"] * 2
"""Those that leave runs out are tried more often."""


def test_nothing_of_other_runs_is_in_any_answer(tmp_path: Path) -> None:
    some: dict[str, dict[str, Any]] = {
        "flows": {"flows": ("plain", "ask_text")},
        "tags": {"tags": ("vip",)},
    }
    few = [entry(f"{role}-{what}", role.value, **only) for role in Role for what, only in some.items()]
    chance = Random(SEED)

    async def run() -> None:
        async with named(tmp_path, "".join(few) + entry("all", "admin")) as s:
            for run_id in HIDDEN:
                labels: dict[str, Any] = {"tags": {"team": CANARY}, "attributes": {"word": CANARY}}
                await s.host.run(secret, {"word": CANARY}, run_id=run_id, by=CANARY, group=CANARY, **labels)
            hidden = [(await s.host.waits(run_id))[0].id for run_id in HIDDEN]
            for name, flow in (("seen-1", plain), ("seen-2", ask_text)):
                await s.host.run(flow, {"x": 1} if flow is plain else {}, run_id=name, tags=["vip"])
            await s.host.start(secret, {"word": CANARY}, run_id="hidden-due", by=CANARY)
            told = 0
            for _ in range(ROUNDS):
                endpoint = chance.choice([*LISTS, *(e for e in ENDPOINTS if e.guard is Guard.BEARER)])
                caller = f"{chance.choice(list(Role))}-{chance.choice(['flows', 'tags'])}"
                path = endpoint.path.replace("{run_id}", quote(chance.choice(WORDS[1:9]), safe="%"))
                path = path.replace("{wait_id}", chance.choice(hidden)).replace("{event}", "e")
                path = path.replace("{breaker}", "b").replace("{flow}", chance.choice(["plain", secret.name]))
                names = [query.name for query in endpoint.query] if chance.random() < 0.8 else ASKED
                picked = chance.sample(names, min(len(names), chance.choice([0, 0, 1, 1, 2])))
                asked = {name: chance.choice(WORDS) for name in picked}
                body = {"flow": chance.choice(["plain", secret.name]), "run_id": chance.choice(WORDS[1:5])}
                sent: dict[str, Any] = {"json": body} if endpoint.method == "POST" else {}
                sent |= {"headers": {**bearer(caller), "Accept": "application/json"}, "params": asked}
                response = await s.client.request(endpoint.method, path, **sent)
                assert response.status_code < 500, (caller, path, asked)
                is_named = secret.name in f"{path} {sent}"
                said = response.text.replace(secret.name, "") if is_named else response.text
                assert CANARY not in said, (caller, endpoint.name, path, asked, sent)
                given = f"{path} {asked} {sent}"
                for name in [*HIDDEN, "hidden-due"]:
                    assert name in given or name not in said, (caller, endpoint.name, path, asked)
                told += response.status_code == 200
            assert told > ROUNDS // 20
            whole = await s.client.get("/runs?labels=true", headers=bearer("all"))
            assert CANARY in whole.text

    asyncio.run(run())
