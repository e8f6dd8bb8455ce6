"""Errors whose modules are loaded only by the calls that raise them: a fresh process goes the same way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

FILES = {
    "app/flows.py": """
        import json, os, signal, sys
        from everstep import Context, Flow, Host, node
        from everstep.errors import StepFailed
        from shop import talk

        def by_a_neighbour():
            from bank import Declined
            raise Declined("visa", left=3)

        def by_a_part_of_the_package():
            from shop.refusals import Closed
            raise Closed("on sundays")

        def by_a_library():
            return talk.ask_vendor()

        def by_what_only_a_library_knows():
            return talk.ask_deeply()

        def by_python():
            import sqlite3
            sqlite3.connect(":memory:").execute("nonsense")

        def die(dies):
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)

        CALLS = [
            by_a_neighbour, by_a_part_of_the_package, by_a_library, by_what_only_a_library_knows, by_python
        ]
        LATE = ("bank", "shop.refusals", "vendor.errors", "under")

        @node(output="found")
        def agent(ctx: Context) -> list[list[str]]:
            assert not [name for name in LATE if name in sys.modules]
            found = []
            for call in CALLS:
                try:
                    ctx.step(call.__name__, call)
                except StepFailed as error:
                    found.append(["StepFailed", str(error)])
                except LookupError as error:
                    found.append(["LookupError", type(error).__name__, repr(error), repr(vars(error))])
                except Exception as error:
                    found.append(["Exception", type(error).__name__, str(error)])
            print(json.dumps(found), flush=True)
            ctx.step("die", die, sys.argv[1] == "dies")
            return found

        if __name__ == "__main__":
            with Host("sqlite:///runs.db") as host:
                host.run(Flow("agent", [agent], durability="strong"), run_id="r").raise_for_status()
    """,
    "app/bank.py": """
        class Declined(LookupError):
            def __init__(self, card, *, left):
                super().__init__(f"{card} is declined")
                self.left = left
    """,
    "app/shop/__init__.py": "",
    "app/shop/refusals.py": "class Closed(LookupError): pass",
    "app/shop/talk.py": """
        def ask_vendor():
            import vendor.errors
            raise vendor.errors.Gone("away")

        def ask_deeply():
            from vendor import deep
            deep.ask()
    """,
    "libraries/vendor/__init__.py": "",
    "libraries/vendor/errors.py": "class Gone(LookupError): pass",
    "libraries/vendor/deep.py": """
        def ask():
            import under
            raise under.Hidden("where")
    """,
    "libraries/under.py": "class Hidden(LookupError): pass",
}


def test_a_fresh_process_takes_the_same_branch_of_every_except(tmp_path: Path) -> None:
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text))

    def life(word: str) -> tuple[int, list[list[str]]]:
        done = subprocess.run(
            [sys.executable, "app/flows.py", word],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path / "libraries")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    code, live = life("dies")
    assert code == -signal.SIGKILL
    code, replayed = life("lives")
    assert code == 0
    assert replayed == live
    assert [found[:2] for found in live] == [
        ["LookupError", "Declined"],
        ["LookupError", "Closed"],
        ["LookupError", "Gone"],
        ["StepFailed", "where"],  # neither the flow nor anything of its packages names that module
        ["Exception", "OperationalError"],
    ]
