"""From a goal to a built thing in ten phases. The phases are data, what they do is simulated.

    everstep run examples/ten_phases.py --input goal="a bicycle shed"

Three gates always ask a person, one phase is done twice before its gate lets it pass.
"""

import json
from pathlib import Path
from typing import Any

from everstep import Context
from everstep.phases import phases

PROCESS = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


def initialize(goal: str) -> dict[str, Any]:
    return {"goal": goal}


def harden(initialization: dict[str, Any], ctx: Context) -> dict[str, Any]:
    ctx.channel.append("health", {"phase": "hardening", "status": "ok"})
    return {"checks": ["keys", "quota", "disk"], "limits": initialization["limits"]}


def discover(initialization: dict[str, Any], hardening: dict[str, Any], ctx: Context) -> dict[str, Any]:
    ctx.spend(usd="1.5")
    about = initialization["goal"]
    return {"findings": [{"id": f"F{n}", "text": f"{about}: finding {n}"} for n in (1, 2, 3)]}


def score_discovery(discovery: dict[str, Any]) -> dict[str, Any]:
    return {"score": 70 + 5 * len(discovery["findings"]), "uncertainty": "low"}


def synthesize(discovery: dict[str, Any], ctx: Context) -> dict[str, Any]:
    ctx.spend(usd="2.25")
    return {"choices": [{"finding": one["id"], "do": "address it"} for one in discovery["findings"]]}


def score_synthesis(synthesis_v1: dict[str, Any]) -> int:
    return 60 + 8 * len(synthesis_v1["choices"])


def stress_test(synthesis_v1: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """Each time it is done again it finds less that breaks."""
    ctx.spend(usd="0.75")
    return {"broken": max(0, 3 - ctx.visit), "tried": len(synthesis_v1["choices"]) * 4}


def score_stress_test(stress_test_v1: dict[str, Any]) -> int:
    return 96 - 12 * int(stress_test_v1["broken"])


def synthesize_again(synthesis_v1: dict[str, Any], stress_test_v1: dict[str, Any]) -> dict[str, Any]:
    return {"choices": synthesis_v1["choices"], "known_weaknesses": stress_test_v1["broken"]}


def score_second_synthesis(synthesis_v2: dict[str, Any]) -> int:
    return 90 - 5 * int(synthesis_v2["known_weaknesses"])


def stress_test_again(synthesis_v2: dict[str, Any]) -> dict[str, Any]:
    return {"broken": 0, "tried": len(synthesis_v2["choices"]) * 8}


def score_second_stress_test(stress_test_v2: dict[str, Any]) -> int:
    return 100 if stress_test_v2["broken"] == 0 else 50


def specify(synthesis_v2: dict[str, Any], ctx: Context) -> dict[str, Any]:
    ctx.spend(usd="3")
    return {"chapters": [f"How to {one['do']}: {one['finding']}" for one in synthesis_v2["choices"]]}


def score_specification(specification: dict[str, Any]) -> int:
    return 85


def build(specification: dict[str, Any], ctx: Context) -> dict[str, Any]:
    ctx.spend(usd="12.5")
    return {"parts": len(specification["chapters"]), "key": ctx.idempotency_key[:8]}


def score_build(build: dict[str, Any]) -> int:
    return 91 if build["parts"] else 0


def look_back(build: dict[str, Any], ctx: Context) -> str:
    decided = [one["decision"] for one in ctx.channel.get("gate_history")]
    return f"{build['parts']} parts built; {len(decided)} gates, {decided.count('iterate')} iteration"


FUNCTIONS = {
    one.__name__: one
    for one in (
        *(initialize, harden, discover, synthesize, stress_test, synthesize_again, stress_test_again),
        *(specify, build, look_back, score_discovery, score_synthesis, score_stress_test),
        *(score_second_synthesis, score_second_stress_test, score_specification, score_build),
    )
}

flow = phases(PROCESS["name"], PROCESS["phases"], functions=FUNCTIONS, lessons=PROCESS["lessons"])
