"""What an `s3://`, `gs://` or `az://` URL says: which bucket, which part of it, and how to get there."""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from everstep.errors import BadRequest

SCHEMES = ("s3", "gs", "az")
TIMEOUT = 30.0
"""Seconds that one request may take, with all it carries."""
_COMMON = ("allow_http", "ca", "timeout")
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "s3": ("endpoint", "region", "profile", "virtual_hosted", *_COMMON),
    "gs": _COMMON,
    "az": ("account", "endpoint", *_COMMON),
}
_FORMS = {
    "s3": "Write s3://bucket/prefix?region=eu-central-1, or ?endpoint=https://host if it is not Amazon's.",
    "gs": "Write gs://bucket/prefix",
    "az": "Write az://container/prefix?account=name",
}
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_WORD = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PART = re.compile(r"[A-Za-z0-9_~=-][A-Za-z0-9._~=-]*")
_HERE = ("localhost", "127.0.0.1", "::1")
_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


class CloudAddress(NamedTuple):
    """A bucket, the part of it that is ours, and the way there. No secret is ever in it."""

    kind: str
    bucket: str
    prefix: str
    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    account: str | None = None
    virtual_hosted: bool = False
    allow_http: bool = False
    ca: str | None = None
    """A file with certificates to trust besides those of the system."""
    timeout: float = TIMEOUT

    @property
    def place(self) -> str:
        """Where it is, as messages name it."""
        at = f" at {self.endpoint}" if self.endpoint else ""
        return f"{self._bare}{at}"

    @property
    def url(self) -> str:
        """The URL as it may be shown and used again."""
        ours = self._replace(allow_http=self.allow_http and not _is_here(self.endpoint))._asdict()
        usual = CloudAddress("", "", "")._asdict()
        told = {name: ours[name] for name in OPTIONS[self.kind] if ours[name] != usual[name]}
        options = "&".join(
            f"{name}={quote(str(value).lower() if value is True else f'{value}', safe=':/')}"
            for name, value in told.items()
        )
        return f"{self._bare}?{options}" if options else self._bare

    @property
    def _bare(self) -> str:
        return f"{self.kind}://{self.bucket}{f'/{self.prefix}' if self.prefix else ''}"

    @property
    def root(self) -> str:
        """What every key begins with."""
        return f"{self.prefix}/" if self.prefix else ""


def read_address(url: str) -> CloudAddress:
    """Read `s3://bucket/prefix?endpoint=...&region=...`; keys do not belong into it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BadRequest("the URL of the bucket cannot be read.", fix=_FORMS["s3"]) from None
    kind = parts.scheme
    if "@" in parts.netloc:
        raise BadRequest(
            "a key does not belong into the URL of a bucket: URLs are logged and shown.",
            fix=_WHERE_KEYS[kind],
        )
    if port is not None or parts.fragment or _BUCKET.fullmatch(parts.netloc) is None:
        raise BadRequest("the URL names no bucket.", fix=_FORMS[kind])
    if kind == "s3" and parts.netloc.endswith("--x-s3"):
        raise BadRequest(
            f"{parts.netloc} is a directory bucket, which lists its names in no order.",
            fix="Use a general purpose bucket.",
        )
    prefix = unquote(parts.path).strip("/")
    if prefix and not all(_PART.fullmatch(part) for part in prefix.split("/")):
        raise BadRequest(
            f"{prefix!r} cannot be the prefix of keys.",
            fix="Use letters, digits and . _ ~ = - in parts that do not begin with a dot.",
        )
    options = _read_options(kind, parts.query)
    endpoint = _read_endpoint(kind, options.get("endpoint"))
    return CloudAddress(
        kind=kind,
        bucket=parts.netloc,
        prefix=prefix,
        endpoint=endpoint,
        region=options.get("region"),
        profile=options.get("profile"),
        account=options.get("account"),
        virtual_hosted=_flag(options, "virtual_hosted"),
        allow_http=_may_be_plain(endpoint, _flag(options, "allow_http")),
        ca=options.get("ca"),
        timeout=_seconds(options.get("timeout", str(TIMEOUT))),
    )


def _read_options(kind: str, query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(options.keys() - set(OPTIONS[kind]))
    if any("key" in name or "secret" in name or "token" in name or "sas" in name for name in unknown):
        raise BadRequest(
            "a key does not belong into the URL of a bucket: URLs are logged and shown.",
            fix=_WHERE_KEYS[kind],
        )
    for name in ("region", "account", "profile"):
        if _WORD.fullmatch(options.get(name, "none")) is None:
            raise BadRequest(f"this is no {name}.", fix="Use letters, digits, dots, '_' and '-'.")
    if unknown:
        raise BadRequest(
            f"unknown option {', '.join(unknown)} in the URL of a bucket.",
            fix=f"Known are {', '.join(OPTIONS[kind])}.",
        )
    return options


def _read_endpoint(kind: str, given: str | None) -> str | None:
    """Return where the server is, from the URL or the usual variables; none is the provider's own."""
    if given is None and kind == "s3":
        given = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if given is None:
        return None
    try:
        parts = urlsplit(given)
        is_sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_sound = False
    if not is_sound or parts.query or parts.fragment or "@" in parts.netloc:
        raise BadRequest(
            "the endpoint is not the address of a server.", fix="Write ?endpoint=https://host:port"
        )
    return given.rstrip("/")


def _may_be_plain(endpoint: str | None, is_allowed: bool) -> bool:
    """Say whether requests may go unencrypted; on this machine they may."""
    parts = urlsplit(endpoint or "")
    if parts.scheme != "http":
        return is_allowed
    if not is_allowed and not _is_here(endpoint):
        raise BadRequest(
            f"{endpoint} is not encrypted: anyone on the network path can read and change what is kept.",
            fix="Use https, or say allow_http=true.",
        )
    return True


def _is_here(endpoint: str | None) -> bool:
    return urlsplit(endpoint or "").hostname in _HERE


def _flag(options: Mapping[str, str], name: str) -> bool:
    value = options.get(name, "false").lower()
    if value not in ("true", "false"):
        raise BadRequest(f"{name}={value} means nothing.", fix=f"Use {name}=true or {name}=false.")
    return value == "true"


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 3600:
        raise BadRequest(f"timeout must be 0–3600 seconds, and is {text}.", fix="Write it as ?timeout=30.")
    return seconds


def profile_keys(address: CloudAddress) -> dict[str, str]:
    """Return keys and region of a profile in the files of the AWS command line, as far as they say so.

    Keys in the environment come first, as everywhere, unless the URL names a profile.
    """
    if address.kind != "s3" or (address.profile is None and "AWS_ACCESS_KEY_ID" in os.environ):
        return {}
    name = address.profile or os.environ.get("AWS_PROFILE") or "default"
    secrets = _section("AWS_SHARED_CREDENTIALS_FILE", "credentials", name)
    settings = _section("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}")
    both = {**settings, **secrets}
    if address.profile is not None and not both:
        raise BadRequest(f"there is no profile {name!r}.", fix="See ~/.aws/credentials, or: aws configure")
    found = {key.removeprefix("aws_"): both[key] for key in _KEYS if key in both}
    has_region = address.region or "AWS_REGION" in os.environ or "AWS_DEFAULT_REGION" in os.environ
    if "region" in both and not has_region:
        found["region"] = both["region"]
    return found


def _section(variable: str, file: str, name: str) -> Mapping[str, str]:
    path = Path(os.environ.get(variable) or Path.home() / ".aws" / file)
    reader = configparser.RawConfigParser()
    try:
        reader.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        # What the parser says quotes the line, which may hold a key.
        raise BadRequest(
            f"{path} cannot be read.", fix="Fix it, or make it anew with: aws configure"
        ) from None
    return dict(reader[name]) if reader.has_section(name) or name == reader.default_section else {}


_WHERE_KEYS = {
    "s3": "Put it into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or into a profile of ~/.aws/credentials.",
    "gs": "Name a file with it in GOOGLE_APPLICATION_CREDENTIALS.",
    "az": "Put it into AZURE_STORAGE_ACCOUNT_KEY.",
}
