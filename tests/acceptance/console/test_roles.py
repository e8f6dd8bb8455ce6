"""What a browser may do depends on who has logged in, and a page of another site may do nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from everstep import Host
from everstep.server.access.token_file import digest_of
from everstep.server.routes import ENDPOINTS
from tests.acceptance.console.conftest import KEY, Console, Tab, opened, tab_of

ROLES = ("viewer", "reader", "approver", "operator", "admin")
ACTS = (
    ("POST", "/runs/A20/cancel"),
    ("POST", "/runs/A20/undo"),
    ("POST", "/runs/A20/pause"),
    ("POST", "/runs/A15/pin"),
    ("POST", "/runs/A15/tags"),
    ("POST", "/runs/A20/fork"),
    ("POST", "/runs/A20/inbox"),
    ("POST", "/runs/A17/resume"),
    ("POST", "/bulk"),
    ("POST", "/pauses"),
    ("POST", "/runs/A22/unpause"),
    ("POST", "/runs/count-3/unpin"),
    ("POST", "/runs/A15/ack"),
    ("POST", "/runs/transfer-1/settle"),
    ("POST", "/waits/00000000-0000-4000-8000-000000000000/answer"),
    ("POST", "/waits/00000000-0000-4000-8000-000000000000/fire"),
    ("POST", "/waits/00000000-0000-4000-8000-000000000000/reissue"),
    ("POST", "/events/paid"),
    ("POST", "/breakers/bank/reset"),
    ("POST", "/notices/A15-1/again"),
    ("POST", "/notices/again"),
    ("POST", "/pauses/lift"),
    ("POST", "/runs"),
    ("POST", "/resume"),
    ("POST", "/runs/A20/inbox/drop"),
    ("POST", "/waits/00000000-0000-4000-8000-000000000000/revoke"),
    ("DELETE", "/runs/A15"),
    ("POST", "/schedules"),
    *(("POST", f"/schedules/A15/{act}") for act in ("pause", "unpause", "run", "change", "backfill")),
    ("POST", "/schedules/A15/backfill/stop"),
    ("DELETE", "/schedules/A15"),
)
SEND = """async ([method, path]) => (await fetch(path, {
    method, headers: { "Content-Type": "application/json", "Everstep-Console": "1" },
    body: method === "POST" ? "{}" : null,
})).status"""


def token_of(role: str) -> str:
    return f"a-token-of-the-{role}-0123456789"


@pytest.fixture(scope="module")
def named(store: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    file = tmp_path_factory.mktemp("names") / "tokens.toml"
    file.write_text(
        "".join(
            f'[tokens.{role}-ann]\nrole = "{role}"\nhashes = [{{ sha256 = "{digest_of(token_of(role))}" }}]\n'
            for role in ROLES
        )
    )
    served = Console(store, "--tokens", str(file))
    yield served
    served.stop()


def log_in(tab: Tab, role: str) -> None:
    page = tab.open("/ui/")
    expect(page).to_have_url(re.compile("/ui/login"))
    page.get_by_label("Token").fill(token_of(role))
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("button", name=f"{role}-ann")).to_be_visible()


def test_no_act_of_the_service_is_left_out_here() -> None:
    for endpoint in ENDPOINTS:
        if endpoint.method != "GET" and endpoint.role is not None and endpoint.guard == "bearer":
            path = re.compile(re.sub(r"\{\w+\}", "[^/]+", endpoint.path))
            acts = [one for one in ACTS if one[0] == endpoint.method and path.fullmatch(one[1])]
            assert acts, f"{endpoint.method} {endpoint.path}"


@pytest.mark.parametrize("role", ["viewer", pytest.param("reader", marks=pytest.mark.soak)])
def test_who_only_looks_is_offered_no_act_and_allowed_none(
    browser: Browser, named: Console, role: str
) -> None:
    with tab_of(browser, named.address) as tab:
        log_in(tab, role)
        page = tab.open("/ui/runs/A21/release")
        expect(page.get_by_role("heading", name="A21")).to_be_visible()
        expect(page.get_by_role("button", name="Acts")).to_have_count(0)
        expect(page.get_by_role("button", name="Approve", exact=True)).to_have_count(0)
        assert {path: page.evaluate(SEND, [method, path]) for method, path in ACTS} == {
            path: 403 for _, path in ACTS
        }
        hidden = page.get_by_text("Values are not shown to viewers.")
        expect(hidden).to_have_count(1 if role == "viewer" else 0)
        if role == "viewer":
            assert "alert(1)" not in page.content()  # what the note of the order says


@pytest.mark.soak
def test_an_approver_answers_and_does_no_more(browser: Browser, named: Console) -> None:
    with tab_of(browser, named.address) as tab:
        log_in(tab, "approver")
        page = tab.open("/ui/runs/A21")
        page.get_by_role("button", name="Approve", exact=True).click()
        expect(page.get_by_role("button", name="Approve", exact=True)).to_have_count(0)
        expect(page.get_by_role("button", name="Acts")).to_have_count(0)
    with Host(named.store, key=KEY) as host:
        [row] = [one for one in host.fleet.audit("A21") if one.act == "answer"]
        assert (row.by, row.how) == ("approver-ann", "authenticated")


@pytest.mark.soak
def test_an_operator_tags_pauses_and_forks_but_erases_nothing(browser: Browser, named: Console) -> None:
    with tab_of(browser, named.address) as tab:
        log_in(tab, "operator")
        page = tab.open("/ui/runs/A17")
        page.get_by_role("button", name="Acts").click()
        page.get_by_role("button", name="Tags").click()
        page.get_by_label(re.compile("Tags, with commas")).fill("look, team=blue")
        page.get_by_role("button", name="Keep").click()
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.get_by_role("button", name="Acts").click()
        page.get_by_role("button", name="Fork from its end").click()
        page.get_by_role("button", name="Fork", exact=True).click()
        expect(page.get_by_text("fork of")).to_be_visible()
        assert page.evaluate(SEND, ["DELETE", "/runs/A15"]) == 403
    with Host(named.store, key=KEY) as host:
        assert host.info("A17").tags == {"look": "", "team": "blue"}
        assert host.runs(parent="A17")[0].status == "running"


@pytest.mark.soak
def test_a_page_of_another_site_does_nothing_with_the_cookie(browser: Browser, named: Console) -> None:
    """Another port of this machine is another site for scripts, and the same one for cookies."""
    evil = Console(named.store, "--no-auth")
    try:
        with tab_of(browser, named.address) as tab:
            log_in(tab, "admin")
            page = tab.page
            page.goto(f"{evil.address}/healthz")
            sent = page.evaluate(
                """async (target) => {
                  const tried = [];
                  for (const headers of [{}, { "Everstep-Console": "1" }, { "Content-Type": "text/plain" }])
                    try {
                      const how = { method: "POST", credentials: "include", headers, body: "{}" };
                      const answer = await fetch(`${target}/runs/A20/cancel`, how);
                      tried.push(answer.status);
                    } catch { tried.push("not read"); }
                  return tried;
                }""",
                named.address,
            )
            assert set(sent) <= {403, "not read"}
            tab.problems.clear()
            tab.requests.clear()
        with Host(named.store, key=KEY) as host:
            assert host.info("A20").status == "halted"
    finally:
        evil.stop()


@pytest.mark.soak
def test_a_console_opened_to_look_says_so(browser: Browser, store: str) -> None:
    with tab_of(browser, "") as tab, opened(store) as url:
        tab.address = url.partition("/ui")[0]
        tab.page.goto(url)
        expect(tab.page.get_by_role("button", name=re.compile("looks only"))).to_be_visible()
        tab.page.goto(f"{tab.address}/ui/runs/A17")
        expect(tab.page.get_by_role("heading", name="A17")).to_be_visible()
        expect(tab.page.get_by_role("button", name="Acts")).to_have_count(0)
