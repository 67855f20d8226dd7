"""What is for people: the page at ``/`` with its files, and the API's description as a page at ``/docs``."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.staticfiles import StaticFiles

from hgclr.serving.api_page import api_page

__all__ = ["add_pages"]

FILES = Path(__file__).parent / "page"
FROM_HERE = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline';"
    " object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Cache-Control": "private, no-cache",
}


class _PageFiles(StaticFiles):
    """The files of the page, asked for anew when they have changed."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers.update(FROM_HERE)
        return response


def add_pages(app: FastAPI) -> None:
    """Add the pages to an application whose other routes are there."""
    app.mount("/page", _PageFiles(directory=FILES, check_dir=False), name="page")

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        if not (FILES / "index.html").is_file():
            raise HTTPException(404, "this installation has no page")
        return FileResponse(FILES / "index.html", headers=FROM_HERE)

    # The framework's own page would load its program from another server.
    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(api_page(app.openapi()))
