"""What the console costs who looks: first paint, seeks, the way of a commit to the screen, idle tabs.

    python -m benchmarks.console [--steps 100000] [--items 10000] [--only run,map,live,storm,idle] [--json]

It makes its own store on a disk in memory where there is one, serves it in a process of its own, and looks at
it with a real Chromium. Each figure stands beside what it should be; on a busy machine they say little.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from everstep import END, Flow, Host, ifelse, node
from everstep.graph.draw.picture import picture_of
from everstep.results import Event
from everstep.server.console.files import assets
from tests.acceptance.console.conftest import FLAGS, Console, chromium, until

KEY = "k" * 32
MEMORY = Path("/dev/shm")


class Wanted(NamedTuple):
    """What a figure should be at most."""

    most: float
    unit: str


WANTED: Mapping[str, Wanted] = {
    "run: first paint": Wanted(1000, "ms"),
    "run: bytes until then": Wanted(150_000, "B"),
    "run: rows in the page": Wanted(300, ""),
    "run: longest pause": Wanted(100, "ms"),
    "run: seek p95": Wanted(150, "ms"),
    "map: first paint": Wanted(1000, "ms"),
    "map: bytes until then": Wanted(150_000, "B"),
    "map: rows in the page": Wanted(300, ""),
    "map: longest pause": Wanted(100, "ms"),
    "live: commit to screen p50": Wanted(300, "ms"),
    "live: commit to screen p99": Wanted(700, "ms"),
    "storm: steps a second": Wanted(float("inf"), "1/s"),
    "storm: paints a second": Wanted(4.5, "1/s"),
    "storm: longest pause": Wanted(100, "ms"),
    "idle: share of a core": Wanted(1, "%"),
    "layout: 2,000 nodes": Wanted(500, "ms"),
    "scripts, compressed": Wanted(60_000, "B"),
}

WATCH = """() => {
  window.marks = { first: null, longest: 0, paints: [] };
  const isThere = () => document.querySelector('.run-head h1') && document.querySelector('.pane.graph .node')
    && document.querySelector('.pane.timeline .seg');
  new MutationObserver(() => {
    if (window.marks.first === null && isThere())
      requestAnimationFrame(() => { window.marks.first ??= performance.now(); });
  }).observe(document, { childList: true, subtree: true });
  new PerformanceObserver((list) => {
    for (const one of list.getEntries()) window.marks.longest = Math.max(window.marks.longest, one.duration);
  }).observe({ type: 'longtask', buffered: true });
}"""
PAINTS = """() => {
  window.marks.paints = [];
  const found = () => document.querySelector('.run-head').innerText.match(/([\\d,.]+) checkpoint/);
  const count = () => Number((found() || [, '0'])[1].replace(/[,.]/g, ''));
  new MutationObserver(() => {
    const now = count(), last = window.marks.paints[window.marks.paints.length - 1];
    if (!last || now !== last[1]) window.marks.paints.push([Date.now(), now]);
  }).observe(document.querySelector('.run-head'), { childList: true, subtree: true, characterData: true });
}"""
ROWS = "() => document.querySelectorAll('tr, .seg, svg .node').length"
SEEK = """async (target) => {
  const began = performance.now();
  history.pushState(null, '', target.address);
  dispatchEvent(new PopStateEvent('popstate'));
  const shown = () => document.querySelector('.panes').dataset.sequence === String(target.sequence);
  while (!shown()) await new Promise(requestAnimationFrame);
  return performance.now() - began;
}"""


@node(output="n")
def step(n: int) -> int:
    return n + 1


@ifelse(when_true="step", when_false=END)
def more(n: int, limit: int) -> bool:
    return n < limit


def counting(most: int) -> Flow:
    return Flow("counting", [step, more], entry="step", durability="strong", max_steps=4 * most)


@node(output="doubled")
def double(x: int) -> int:
    if x % 1000 == 7:
        raise ValueError(f"item {x} is odd")
    return 2 * x


mapped = Flow(
    "mapped",
    [
        Flow("doubling", [double])
        .as_node()
        .map_over("x", on_error="collect")
        .with_inputs(x="xs")
        .with_outputs(doubled="all")
    ],
    durability="strong",
)


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as found:
        yield Path(found)


def p(share: float, figures: list[float]) -> float:
    return sorted(figures)[min(len(figures) - 1, int(share * len(figures)))]


class Looking:
    """A service and a browser that looks at it."""

    def __init__(self, browser: Browser, served: Console) -> None:
        self.browser, self.served = browser, served

    @contextmanager
    def page(self, path: str) -> Iterator[tuple[Page, list[int]]]:
        """Open a page in a profile of its own; yields how many bytes came, too."""
        context = self.browser.new_context(viewport={"width": 1280, "height": 800})
        page, came = context.new_page(), [0]
        session = context.new_cdp_session(page)
        session.send("Network.enable")
        session.on("Network.loadingFinished", lambda told: came.append(int(told["encodedDataLength"])))
        page.add_init_script(f"({WATCH})()")
        page.goto(self.served.address + path)
        try:
            yield page, came
        finally:
            context.close()

    def opened(self, path: str, name: str) -> dict[str, float]:
        with self.page(path) as (page, came):
            page.wait_for_function("() => window.marks.first !== null", timeout=60_000)
            page.wait_for_timeout(500)
            return {
                f"{name}: first paint": page.evaluate("() => window.marks.first"),
                f"{name}: bytes until then": sum(came),
                f"{name}: rows in the page": page.evaluate(ROWS),
                f"{name}: longest pause": page.evaluate("() => window.marks.longest"),
            }


def of_a_run(looking: Looking, steps: int) -> dict[str, float]:
    with Host(looking.served.store, key=KEY) as host:
        host.run(counting(steps), {"n": 0, "limit": steps // 2}, run_id="long")
        last = host.info("long").checkpoints
    looking.opened("/ui/runs/long", "warm")
    found = looking.opened("/ui/runs/long", "run")
    seeks = []
    with looking.page("/ui/runs/long") as (page, _):
        page.wait_for_function("() => window.marks.first !== null", timeout=60_000)
        for k in range(60):
            sequence = 1 + (k * 7919 * 13) % (last - 1)
            target = {"address": f"/ui/runs/long@{sequence}", "sequence": sequence}
            seeks.append(page.evaluate(SEEK, target))
        found["run: seek p95"] = p(0.95, seeks)
        found["run: longest pause"] = max(
            found["run: longest pause"], page.evaluate("() => window.marks.longest")
        )
    return found


def of_a_map(looking: Looking, items: int) -> dict[str, float]:
    with Host(looking.served.store, key=KEY) as host:
        host.run(mapped, {"xs": list(range(items))}, run_id="wide")
    return looking.opened("/ui/runs/wide/doubling", "map")


@node(output="n")
def tick(n: int, apart: float) -> int:
    time.sleep(apart)
    return n + 1


@ifelse(when_true="tick", when_false=END)
def goes_on(n: int, limit: int) -> bool:
    return n < limit


ticking = Flow("ticking", [tick, goes_on], entry="tick", durability="strong", max_steps=1_000_000)


def _drive(url: str, run_id: str, limit: int, apart: float, told: Any) -> None:
    """In a process of its own: drive a run, and tell when each of its checkpoints was committed."""
    times: dict[int, float] = {}

    def note(event: Event) -> None:
        if event.kind == "checkpoint":
            times[event.data["sequence"]] = time.time() * 1000

    with Host(url, key=KEY, on_event=note) as host:
        host.run(ticking, {"n": 0, "limit": limit, "apart": apart}, run_id=run_id)
    told.put(times)


@contextmanager
def driven(
    looking: Looking, run_id: str, limit: int, apart: float
) -> Iterator[Callable[[], dict[int, float]]]:
    """Drive a run elsewhere; what is yielded waits for its end, and gives the times of its commits."""
    told: Any = multiprocessing.get_context("spawn").Queue()
    arguments = (looking.served.store, run_id, limit, apart, told)
    process = multiprocessing.get_context("spawn").Process(target=_drive, args=arguments)
    process.start()
    try:
        with Host(looking.served.store, key=KEY) as host:
            until(lambda: any(one.run_id == run_id for one in host.runs(flow="ticking")))
        yield told.get
    finally:
        process.join()


def of_commits(looking: Looking, commits: int) -> dict[str, float]:
    with driven(looking, "ticking", commits, 0.4) as ended, looking.page("/ui/runs/ticking") as (page, _):
        page.wait_for_function("() => window.marks.first !== null", timeout=60_000)
        page.evaluate(PAINTS)
        times = ended()
        page.wait_for_timeout(1500)
        seen = page.evaluate("() => window.marks.paints")
    late = []
    for sequence, at in times.items():
        first = next((when for when, shown in seen if shown >= sequence), None)
        if first is not None and at > seen[0][0]:
            late.append(first - at)
    return {"live: commit to screen p50": p(0.5, late), "live: commit to screen p99": p(0.99, late)}


def of_a_storm(looking: Looking, steps: int) -> dict[str, float]:
    with driven(looking, "storm", steps, 0.0) as ended, looking.page("/ui/runs/storm") as (page, _):
        page.wait_for_function("() => window.marks.first !== null", timeout=60_000)
        page.evaluate(PAINTS)
        began = time.monotonic()
        times = ended()
        took = time.monotonic() - began
        paints = [when for when, _ in page.evaluate("() => window.marks.paints")]
        longest = page.evaluate("() => window.marks.longest")
    seconds = max(1.0, (paints[-1] - paints[0]) / 1000) if len(paints) > 1 else 1.0
    return {
        "storm: steps a second": len(times) / max(took, (max(times.values()) - min(times.values())) / 1000),
        "storm: paints a second": len(paints) / seconds,
        "storm: longest pause": longest,
    }


def of_idle_tabs(looking: Looking, tabs: int, seconds: float) -> dict[str, float]:
    """Streams as so many browsers hold them while nothing happens."""
    process = looking.served.process
    assert process is not None
    with httpx.Client(base_url=looking.served.address, timeout=None) as client, ExitStack() as open_:
        headers = {"Accept": "text/event-stream"}
        for _ in range(tabs):
            stream = open_.enter_context(client.stream("GET", "/changes", headers=headers))
            next(stream.iter_bytes())
        time.sleep(2)
        before, began = _spent(process.pid), time.monotonic()
        time.sleep(seconds)
        share = (_spent(process.pid) - before) / (time.monotonic() - began)
    return {"idle: share of a core": 100 * share}


def _spent(pid: int) -> float:
    """Return the seconds of the processor that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def of_layout() -> dict[str, float]:
    flow = Flow("wide", [_chained(k) for k in range(2000)])
    began = time.process_time()
    picture_of(flow.plan, all_open=True)
    scripts = sum(len(one.packed) for name, one in assets().items() if name.endswith(".js"))
    return {
        "layout: 2,000 nodes": 1000 * (time.process_time() - began),
        "scripts, compressed": scripts,
    }


def _chained(k: int) -> Any:
    """Return a node that reads what one or two before it wrote."""
    reads = [f"v{k - back}" for back in (1, 7) if k >= back]
    names: dict[str, Any] = {}
    exec(f"def step{k}({', '.join(f'{name}: int' for name in reads)}) -> int:\n    return {k}\n", names)
    return node(output=f"v{k}")(names[f"step{k}"])


SECTIONS = ("run", "map", "live", "storm", "idle", "layout")


def measured(only: Collection[str], steps: int, items: int, commits: int, idle: float) -> dict[str, float]:
    """Return the figures of some sections."""
    found = of_layout() if "layout" in only else {}
    if not set(only) - {"layout"}:
        return found
    with folder() as place, sync_playwright() as playwright:
        url = f"sqlite:///{place}/runs.db"
        with Host(url, key=KEY) as host:
            host.run(counting(10), {"n": 0, "limit": 3})
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        served = Console(url, "--no-auth")
        looking = Looking(browser, served)
        try:
            sections: dict[str, Callable[[], dict[str, float]]] = {
                "run": lambda: of_a_run(looking, steps),
                "map": lambda: of_a_map(looking, items),
                "live": lambda: of_commits(looking, commits),
                "storm": lambda: of_a_storm(looking, steps // 5),
                "idle": lambda: of_idle_tabs(looking, 100, idle),
            }
            for name, measure in sections.items():
                if name in only:
                    found |= measure()
        finally:
            served.stop()
            browser.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--commits", type=int, default=60)
    parser.add_argument("--idle", type=float, default=20, help="seconds to look at idle tabs")
    parser.add_argument("--only", default=",".join(SECTIONS))
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = measured(asked.only.split(","), asked.steps, asked.items, asked.commits, asked.idle)
    if asked.json:
        print(json.dumps(found, indent=2))
        return 0
    for name, figure in found.items():
        wanted = WANTED[name]
        mark = "" if figure <= wanted.most else "  too much"
        print(f"{name:32} {figure:12,.1f} {wanted.unit:4} (at most {wanted.most:,.0f}){mark}")
    return int(any(figure > WANTED[name].most for name, figure in found.items()))


if __name__ == "__main__":
    sys.exit(main())
