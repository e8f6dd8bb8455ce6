"""The console's page, its files, and how a browser logs in. Apart from `routes`, a table."""

from __future__ import annotations

from html import escape
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from everstep.errors import EverstepError, Forbidden, NoSuchPath
from everstep.server.access.sessions import LASTS
from everstep.server.bodies import read_form
from everstep.server.console.files import assets, edition
from everstep.server.console.linking import needed
from everstep.server.endpoint import Service
from everstep.server.wire import failure

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex, nofollow",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
FOR_EVER = {
    "Cache-Control": "public, max-age=31536000, immutable",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Vary": "Accept-Encoding",
}


def prefix_of(service: Service) -> str:
    """Return the path below which browsers find the service, such as `/flows`; empty at the top."""
    return urlsplit(service.base_url).path.rstrip("/")


async def begin(service: Service, request: Request) -> Response:
    """Lead from the top of the service to the console."""
    return RedirectResponse(f"{prefix_of(service)}/ui/", 307, HEADERS)


async def show(service: Service, request: Request) -> Response:
    """Give the page: which view it shows is in its path, which its scripts read."""
    prefix = prefix_of(service)
    files = f"{prefix}/ui/assets/{edition()}"
    loads = "".join(
        f'<link rel="modulepreload" href="{files}/{name}">\n'
        for name in dict.fromkeys((*needed("app.js"), *needed(_view_at(request.path_params.get("view", "")))))
    )
    return _page(
        "everstep",
        f'{loads}<script type="module" src="{files}/app.js"></script>\n',
        f'<div id="app" data-prefix="{escape(prefix)}"><p class="quiet pad">Loading the console …</p></div>\n'
        "<noscript><p class=pad>The console needs scripts. Pages for answers do without.</p></noscript>",
        files,
    )


def _view_at(path: str) -> str:
    """Return the module of the view that a path shows, to be loaded with the page."""
    name, _, rest = path.strip("/").partition("/")
    view = {"": "runs", "runs": "run" if rest else "runs", "flows": "flow" if rest else "flows"}
    return found if (found := f"views/{view.get(name, name)}.js") in assets() else "views/runs.js"


async def asset(service: Service, request: Request) -> Response:
    """Give one of the files that the page loads."""
    found = assets().get(request.path_params["name"])
    if found is None:
        return failure(NoSuchPath("there is nothing here.", fix="Open /ui/."))
    # A page from before an upgrade gets the files of now, and nothing keeps them under the old name.
    is_current = request.path_params["edition"] == edition()
    headers = {**FOR_EVER} if is_current else {**FOR_EVER, "Cache-Control": "no-store"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(
            found.packed, 200, {**headers, "Content-Encoding": "gzip"}, media_type=found.media_type
        )
    return Response(found.body, 200, headers, media_type=found.media_type)


async def login(service: Service, request: Request) -> Response:
    """Ask for a token, or take the code that is in the address."""
    code = request.query_params.get("code")
    if code is None:
        return _login_page(service)
    cookie = service.access.sessions.use(code)
    if cookie is None:
        return _login_page(service, "This link was used already, or its time is over.", status=401)
    return _logged_in(service, cookie)


async def log_in(service: Service, request: Request) -> Response:
    """Take the token that the form sends."""
    _check_own_form(service, request)
    form = await read_form(request, service.max_body)
    try:
        cookie = service.access.log_in(form.get("token", "").strip())
    except EverstepError as error:
        return _login_page(service, f"That did not work: {error.message}", status=error.http_status)
    return _logged_in(service, cookie)


async def log_out(service: Service, request: Request) -> Response:
    """Let a browser forget who it is."""
    _check_own_form(service, request)
    sessions = service.access.sessions
    if (cookie := request.cookies.get(sessions.cookie)) is not None:
        sessions.end(cookie)
    response = RedirectResponse(f"{prefix_of(service)}/ui/login", 303, HEADERS)
    response.delete_cookie(sessions.cookie, path=prefix_of(service) or "/")
    return response


def _check_own_form(service: Service, request: Request) -> None:
    """Refuse a form of another site's page: it would log a person in as someone else."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    own = {request.headers.get("host", ""), urlsplit(service.base_url).netloc} - {""}
    if site not in (None, "same-origin", "none") or (
        origin is not None and urlsplit(origin).netloc not in own
    ):
        raise Forbidden("a browser sends this for a page of another site.", fix="Log in at /ui/login.")


def _logged_in(service: Service, cookie: str) -> Response:
    response = RedirectResponse(f"{prefix_of(service)}/ui/", 303, HEADERS)
    response.set_cookie(
        service.access.sessions.cookie,
        cookie,
        max_age=int(LASTS.total_seconds()),
        path=prefix_of(service) or "/",
        httponly=True,
        samesite="strict",
        secure=service.base_url.startswith("https://"),
    )
    return response


def _login_page(service: Service, problem: str = "", *, status: int = 200) -> Response:
    prefix = prefix_of(service)
    files = f"{prefix}/ui/assets/{edition()}"
    if service.access.takes_tokens:
        form = (
            f'<form method="post" action="{prefix}/ui/login" class="login">\n'
            '<label for="token">Token</label>\n'
            '<input id="token" name="token" type="password" autocomplete="current-password" '
            "required autofocus>\n"
            '<button class="main">Log in</button>\n</form>\n'
            '<p class="quiet">Or open the address that <code>everstep console</code> prints.</p>'
        )
    else:
        form = "<p>Open the address that <code>everstep console</code> prints, or call through the proxy.</p>"
    told = f'<p class="problem" role="alert">{escape(problem)}</p>\n' if problem else ""
    return _page(
        "Log in · everstep", "", f'<main class="narrow"><h1>everstep</h1>\n{told}{form}</main>', files, status
    )


def _page(title: str, head: str, body: str, files: str, status: int = 200) -> Response:
    text = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n"
        f'<link rel="icon" href="{files}/icon.svg" type="image/svg+xml">\n'
        f'<link rel="stylesheet" href="{files}/console.css">\n{head}</head>\n'
        f"<body>\n{body}\n</body>\n</html>\n"
    )
    return Response(text.encode(), status, HEADERS, media_type="text/html")
