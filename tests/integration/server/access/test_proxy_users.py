"""Users whom a proxy names, and credentials that count for nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from everstep.cli.main import cli
from everstep.errors import BadRequest, Unauthorized
from everstep.server.access.admission import Access, Claims
from everstep.server.access.proxy import proxy_users
from everstep.server.access.roles import Role
from everstep.server.access.token_file import digest_of, read_entries
from everstep.testing import ManualClock
from tests.integration.server.access.named_callers import entry, named, token_of
from tests.integration.server.serving import Serving, code_of

USERS = proxy_users("X-Forwarded-User", ["10.0.0.0/8", "127.0.0.1"], "reader")
FILE = entry("robot", "operator") + '[users.ann]\nrole = "operator"\n'
START = {"flow": "plain", "inputs": {"x": 1}}


def calling_from(s: Serving, address: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(s.app, client=(address, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://flows.test")


def test_the_header_counts_from_the_named_addresses_alone(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, FILE, users=USERS) as s:
            user = {"X-Forwarded-User": "bo"}
            cases = {"10.1.2.3": 200, "::ffff:10.1.2.3": 200, "127.0.0.1": 200, "11.0.0.1": 401, "::1": 401}
            for address, status in cases.items():
                async with calling_from(s, address) as client:
                    assert (await client.get("/runs", headers=user)).status_code == status, address
                    assert (await client.get("/runs")).status_code == 401
                    robot = {"Authorization": f"Bearer {token_of('robot')}"}
                    assert (await client.get("/runs", headers=robot)).status_code == 200
            async with calling_from(s, "10.1.2.3") as client:
                twice = [("X-Forwarded-User", "bo"), ("X-Forwarded-User", "ann")]
                assert (await client.get("/runs", headers=twice)).status_code == 401
                for odd in (b"", b" ", b"a" * 201, b"\xff\xfe", b"a\x07b"):
                    response = await client.get("/runs", headers={b"X-Forwarded-User": odd})
                    assert response.status_code == 401, odd

    asyncio.run(run())


def test_a_user_has_the_role_of_the_file_or_that_of_all_and_does_things_by_name(tmp_path: Path) -> None:
    async def run() -> None:
        async with named(tmp_path, FILE, users=USERS) as s, calling_from(s, "10.0.0.1") as client:
            refused = await client.post("/runs", json=START, headers={"X-Forwarded-User": "bo"})
            assert code_of(refused) == (403, "request.forbidden")
            started = await client.post(
                "/runs", json={**START, "run_id": "A"}, headers={"X-Forwarded-User": "ann"}
            )
            assert started.status_code == 202
            act = (await s.host.history("A"))[0].act
            assert act is not None
            assert (act.by, act.how) == ("ann", "authenticated")

    asyncio.run(run())


@pytest.mark.parametrize("spelled", ["Ann", "ANN", "\uff41nn"])
def test_a_user_who_is_spelt_otherwise_than_in_the_file_gets_no_other_role(
    tmp_path: Path, spelled: str
) -> None:
    async def run() -> None:
        users = replace(USERS, role=Role.ADMIN)
        async with named(tmp_path, FILE, users=users) as s, calling_from(s, "10.0.0.1") as client:
            for name, status in (("ann", 200), ("bob", 200), (spelled, 403)):
                response = await client.get("/me", headers=[(b"X-Forwarded-User", name.encode())])
                assert response.status_code == status, name
            assert "'ann'" in response.json()["message"]

    asyncio.run(run())


def test_a_file_with_two_users_that_are_one_to_the_eye_is_refused() -> None:
    text = b'[users.ann]\nrole = "viewer"\n[users.Ann]\nrole = "admin"\n'
    with pytest.raises(BadRequest, match="'ann' and 'Ann' are one name to the eye"):
        read_entries(text, "tokens.toml")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({}, 202),
        ({"Origin": "https://flows.example"}, 202),
        ({"Origin": "http://flows.test"}, 202),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://elsewhere.example"}, 202),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "https://flows.example"}, 403),
    ],
)
def test_what_another_web_page_sends_for_a_user_is_refused(
    tmp_path: Path, sent: dict[str, str], status: int
) -> None:
    async def run() -> None:
        about: dict[str, Any] = {"users": USERS, "base_url": "https://flows.example"}
        async with named(tmp_path, FILE, **about) as s, calling_from(s, "10.0.0.1") as client:
            response = await client.post("/runs", json=START, headers={"X-Forwarded-User": "ann", **sent})
            assert response.status_code == status, response.text

    asyncio.run(run())


@pytest.mark.parametrize("addresses", [[], ["0.0.0.0/0"], ["::/0"], ["proxy"], ["10.0.0.1/8"]])
def test_addresses_that_are_none_or_all_are_refused(addresses: list[str]) -> None:
    with pytest.raises(BadRequest):
        proxy_users("X-Forwarded-User", addresses)


@given(
    st.one_of(
        st.text(max_size=300),
        st.integers(0, 60).map(lambda at: token_of("ann")[:at] + "x" + token_of("ann")[at + 1 :]),
        st.integers(0, 51).map(lambda cut: token_of("ann")[:cut]),
        st.sampled_from([token_of("ann") * 2000, token_of("ann").upper(), digest_of(token_of("ann"))]),
    ).filter(lambda said: said.strip() != token_of("ann")),
    st.sampled_from(["Bearer ", "bearer ", "Basic ", "", "Bearer"]),
)
def test_nothing_but_the_token_is_let_in(said: str, scheme: str) -> None:
    claims = Claims(authorization=[scheme + said], users=lambda name: [], peer="10.0.0.1")
    with pytest.raises(Unauthorized) as refused:
        ACCESS.admit(claims)
    assert said[:24] not in str(refused.value) or len(said) < 24


ACCESS = Access(ManualClock(), token=token_of("ann"))


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_whatever_is_in_a_file_is_read_or_refused_by_name(text: bytes) -> None:
    try:
        read_entries(text, "tokens.toml")
    except BadRequest as error:
        assert str(error).startswith("tokens.toml cannot be used: ")


@pytest.mark.parametrize(
    "text",
    [
        '[tokens.ann]\nrole = "admin"\ntoken = "TOKEN"',
        '[tokens.ann]\nrole = "admin"\nhashes = ["TOKEN"]',
        '[tokens.ann]\nrole = "admin"\nhashes = [{sha256 = "TOKEN"}]',
        '[tokens.ann]\nrole = "TOKEN"\nhashes = []',
        '[tokens.TOKEN]\nrole = "admin"\nhashes = []',
        "TOKEN",
        '{"tokens": {"ann": {"role": "admin", "secret": "TOKEN"}}}',
    ],
)
def test_a_file_with_a_token_itself_is_refused_and_the_token_not_repeated(text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read_entries(text.replace("TOKEN", token_of("ann")).encode(), "tokens.toml")
    assert token_of("ann") not in str(refused.value)


def test_a_token_made_at_a_shell_is_shown_once_and_lets_in(tmp_path: Path) -> None:
    file = str(tmp_path / "tokens.toml")
    made = [
        CliRunner().invoke(cli, ["token", "new", "ann@example.com", *more, "--file", file])
        for more in (["--role", "operator", "--flow", "plain", "--tag", "team=blue"], ["--expires", "90d"])
    ]
    tokens = [one.stdout.splitlines()[0] for one in made]
    found = read_entries(Path(file).read_bytes(), file).tokens
    assert [found[digest_of(token)].name for token in tokens] == ["ann@example.com"] * 2
    assert {(one.role, one.flows, one.tags) for one in found.values()} == {
        ("operator", frozenset({"plain"}), frozenset({"team=blue"}))
    }
    assert Path(file).stat().st_mode & 0o077 == 0
    listed = CliRunner().invoke(cli, ["token", "list", file, "--json"])
    assert listed.exit_code == 0 and '"team=blue"' in listed.output
    assert "team=blue" in CliRunner().invoke(cli, ["token", "list", file]).output
    for token in tokens:
        assert token not in listed.output
        assert token not in Path(file).read_text()
    other = CliRunner().invoke(cli, ["token", "new", "ann@example.com", "--role", "admin", "--file", file])
    assert isinstance(other.exception, BadRequest)
