"""The pages that may use a server on a port: its own, those of allowed places, and no others."""

import asyncio
import gzip
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from journeyman import Runtime, run
from journeyman.mcp_server import create_mcp_server, serve_mcp_http
from journeyman.serve.http_guard import LOOPBACK, HttpGuard
from tests.serve.http_served import clerk, serving
from tests.view.desk import viewing

OWN = "127.0.0.1:8000"
ASKED: tuple[tuple[str, str, dict[str, str], int], ...] = (
    ("a program", "POST", {}, 200),
    ("its own page", "POST", {"origin": f"http://{OWN}"}, 200),
    ("its own page, behind TLS", "POST", {"origin": f"https://{OWN}"}, 200),
    ("a page of another port", "POST", {"origin": "http://127.0.0.1:9000"}, 403),
    ("a page of another port that reads", "GET", {"origin": "http://127.0.0.1:9000"}, 403),
    ("a page of no port", "POST", {"origin": "http://127.0.0.1"}, 403),
    ("a page of another name of this machine", "POST", {"origin": "http://localhost:8000"}, 403),
    ("a page of nowhere", "POST", {"origin": "null"}, 403),
    ("a page of a file", "POST", {"origin": "file://"}, 403),
    ("an extension", "POST", {"origin": f"chrome-extension://{OWN}"}, 403),
    ("no URL", "POST", {"origin": "http://[::1"}, 403),
    ("an allowed page", "POST", {"origin": "https://ui.example.org"}, 200),
    ("an allowed page at another port", "POST", {"origin": "https://ui.example.org:9000"}, 403),
    ("an allowed page with its port", "POST", {"origin": "http://localhost:3000"}, 200),
    ("a name that ends so", "POST", {"origin": "https://evil-ui.example.org"}, 403),
    ("an allowed name", "POST", {"host": "ui.example.org"}, 200),
    ("an unknown name", "GET", {"host": "evil.example.org"}, 421),
    ("no name", "GET", {"host": ""}, 421),
    ("IPv6", "POST", {"host": "[::1]:8000", "origin": "http://[::1]:8000"}, 200),
    ("a form of a page that hides itself", "POST", {"sec-fetch-site": "cross-site"}, 403),
    ("a form of another port", "POST", {"sec-fetch-site": "same-site"}, 403),
    ("its own form", "POST", {"sec-fetch-site": "same-origin"}, 200),
    ("a link elsewhere", "GET", {"sec-fetch-site": "cross-site"}, 200),
    ("a link in a browser", "GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 200),
    ("an image of another page", "GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
    ("a question of another page", "HEAD", {"sec-fetch-site": "cross-site"}, 403),
)


@pytest.mark.parametrize(("method", "headers", "status"), [each[1:] for each in ASKED], ids=[each[0] for each in ASKED])
def test_only_pages_of_the_server_itself_and_of_allowed_places_may_use_it(
    method: str, headers: dict[str, str], status: int
) -> None:
    allowed = ("ui.example.org", "localhost:3000")
    guarded = HttpGuard(PlainTextResponse("ok"), hosts=[*LOOPBACK, *allowed], origins=allowed)
    client = TestClient(guarded, headers={"host": OWN})
    assert client.request(method, "/", headers=headers).status_code == status


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
async def test_what_a_form_of_a_page_can_send_is_no_json_on_any_route(kind: str) -> None:
    form: Any = b'{"input": "csrf"}'
    async with serving([clerk()]) as served:
        for method, path in served.app.routes:
            if method == "POST":
                place = served.url + path.format(agent="clerk", id="one", question="abcdef")
                async with served.client.post(place, data=form, headers={"Content-Type": kind}) as response:
                    assert (response.status, (await response.json())["error"]["code"]) == (415, "WRONG_TYPE"), path
        for good in ("application/json", "Application/JSON; charset=utf-8"):
            place = f"{served.url}/agents/clerk/runs"
            async with served.client.post(place, data=form, headers={"Content-Type": good}) as response:
                assert response.status == 200


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "identity, zstd", "GZIP"])
async def test_a_body_that_is_encoded_is_told_as_what_it_is_on_any_route(tmp_path: Path, encoding: str) -> None:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    mcp = asyncio.create_task(serve_mcp_http(create_mcp_server(clerk()), port=0, on_ready=ready.set_result))
    store = tmp_path / "runs.db"
    await run(clerk(), "Hello.", runtime=Runtime(recorder=store))
    async with serving([clerk()]) as served, viewing(store) as desk:
        posts = [
            path.format(agent="clerk", id="one", question="abcdef")
            for method, path in served.app.routes
            if method == "POST"
        ]
        places = [await ready, f"{desk.url}/api/forget", *[served.url + path for path in posts]]
        for place in places:
            headers = {"Content-Encoding": encoding, "Content-Type": "application/json"}
            async with desk.session.post(place, data=gzip.compress(b"{}"), headers=headers) as response:
                assert (response.status, response.headers["Accept-Encoding"]) == (415, "identity"), place
                assert repr(encoding) in await response.text()
        plain: Any = {"data": b"{}", "headers": {"Content-Encoding": "identity", "Content-Type": "application/json"}}
        async with desk.session.post(f"{desk.url}/api/forget", **plain) as response:
            assert response.status == 422
        async with desk.session.post(places[-1], data=b"<>", headers={"Content-Type": "text/html"}) as response:
            assert (response.status, "Accept-Encoding" in response.headers) == (415, False)
    mcp.cancel()
    await asyncio.wait({mcp})
