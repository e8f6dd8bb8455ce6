"""The files that the console's page loads."""

from __future__ import annotations

import gzip
import re
from hashlib import sha256

from everstep.server.console.files import FOLDER, assets, edition
from tests.integration.server.serving import Serving, served

MOST = 60_000
"""Bytes of all scripts, compressed, as they cross the network."""


def test_the_view_library_is_the_one_that_was_vetted() -> None:
    said = (FOLDER / "vendor/README.txt").read_text()
    body = (FOLDER / "vendor/htm-preact-3.1.1.js").read_bytes()
    assert sha256(body).hexdigest() in said
    assert (FOLDER / "vendor/LICENSE-htm.txt").exists() and (FOLDER / "vendor/LICENSE-preact.txt").exists()


def test_all_scripts_together_are_small() -> None:
    scripts = {name: len(one.packed) for name, one in assets().items() if name.endswith(".js")}
    assert sum(scripts.values()) <= MOST, scripts


def test_scripts_import_what_is_there_and_nothing_from_elsewhere() -> None:
    for name, asset in assets().items():
        if not name.endswith(".js") or name.startswith("vendor/"):
            continue
        text = asset.body.decode()
        assert "http://" not in text.replace("http://www.w3.org", "") and "https://" not in text, name
        assert "innerHTML" not in text and "eval(" not in text, name
        for target in re.findall(r"""(?:from|import\()\s*"(\.[^"]+)\"""", text):
            path = (FOLDER / name).parent.joinpath(target).resolve()
            assert path.is_file(), f"{name} imports {target}"


@served()
async def test_files_are_kept_for_ever_under_the_name_of_their_edition(s: Serving) -> None:
    now = await s.client.get(f"/ui/assets/{edition()}/app.js", headers={"Accept-Encoding": "gzip"})
    assert now.status_code == 200 and "immutable" in now.headers["cache-control"]
    assert now.headers["content-encoding"] == "gzip" and now.content == assets()["app.js"].body
    assert gzip.decompress(assets()["app.js"].packed) == assets()["app.js"].body
    before = await s.client.get("/ui/assets/000000000000/app.js", headers={"Accept-Encoding": "identity"})
    assert before.status_code == 200 and before.headers["cache-control"] == "no-store"
    for path in ("nothing.js", "../pages.py", "%2e%2e/pages.py", "vendor", ""):
        assert (await s.client.get(f"/ui/assets/{edition()}/{path}")).status_code in (200, 404)
        assert "import annotations" not in (await s.client.get(f"/ui/assets/{edition()}/{path}")).text


@served()
async def test_a_page_names_all_that_its_view_loads(s: Serving) -> None:
    for path, view in (
        ("/ui/", "views/runs.js"),
        ("/ui/runs/A17@3/charge", "views/run.js"),
        ("/ui/flows", "views/flows.js"),
        ("/ui/flows/orders", "views/flow.js"),
        ("/ui/compare?a=A17&b=A18", "views/compare.js"),
        ("/ui/nothing/there", "views/runs.js"),
    ):
        page = (await s.client.get(path)).text
        named = set(re.findall(rf'modulepreload" href="/ui/assets/{edition()}/([^"]+)"', page))
        assert {"app.js", view} <= named, path
        for name in named - {"vendor/htm-preact-3.1.1.js"}:
            for target in re.findall(r"""from\s*"(\.[^"]+)\"""", assets()[name].body.decode()):
                found = (FOLDER / name).parent.joinpath(target).resolve().relative_to(FOLDER.resolve())
                assert found.as_posix() in named, f"{path}: {name} imports {target}"
