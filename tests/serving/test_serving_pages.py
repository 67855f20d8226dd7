"""What is for people: the page and its files, the description of the API, nothing from outside."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

import hgclr.serving
from hgclr.serving.app import api_page

PAGE = Path(hgclr.serving.__file__).parent / "page"


def test_the_page_and_its_files_are_served(client: httpx.Client) -> None:
    if not (PAGE / "index.html").is_file():
        pytest.skip("this installation has no page")
    answer = client.get("/")
    assert answer.content == (PAGE / "index.html").read_bytes()
    assert answer.headers["Content-Type"].startswith("text/html")
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    kinds = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
    for file in PAGE.iterdir():
        if file.suffix in kinds:
            served = client.get(f"/page/{file.name}")
            assert served.content == file.read_bytes()
            assert served.headers["Content-Type"].startswith(kinds[file.suffix])
            assert served.headers["X-Content-Type-Options"] == "nosniff"


def test_an_installation_without_the_page_says_so(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("hgclr.serving.app.FILES", tmp_path)
    answer = client.get("/")
    assert answer.status_code == 404
    assert answer.json()["error"] == {"type": "not_found", "message": "this installation has no page"}


@pytest.mark.parametrize("path", ["/page/../app.py", "/page/%2e%2e/app.py", "/page/..%2fapp.py", "/page//etc/passwd"])
def test_no_other_file_is(client: httpx.Client, path: str) -> None:
    with httpx.Client() as raw:
        request = raw.build_request("GET", client.base_url)
        request.extensions["target"] = path.encode()
        answer = raw.send(request)
    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "not_found"


def test_the_description_is_a_page_that_loads_nothing(client: httpx.Client) -> None:
    answer = client.get("/docs")
    assert answer.status_code == 200
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", answer.text)
    assert "<script src" not in answer.text
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        for method in methods:
            assert f"{method.upper()} {path}" in answer.text


def test_every_word_of_the_description_is_escaped() -> None:
    bad = "<script>alert(1)</script>"
    page = api_page(
        {
            "info": {"title": bad, "version": bad, "description": bad},
            "paths": {bad: {"get": {"summary": bad, "responses": {"200": {"description": bad}}}}},
            "components": {
                "schemas": {bad: {"description": bad, "properties": {bad: {"type": bad, "description": bad}}}}
            },
        }
    )
    assert bad not in page
