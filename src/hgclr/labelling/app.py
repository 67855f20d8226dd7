"""The web application of ``hgclr label``: the page, and endpoints for texts, answers and progress."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.staticfiles import StaticFiles

from hgclr.errors import InputError
from hgclr.files import flush, json_text, read_json
from hgclr.labelling.store import Answer
from hgclr.serving.app import FILES as SHARED_FILES
from hgclr.serving.app import LOCAL_HOSTS, PAGE_HEADERS, taxonomy_routes
from hgclr.serving.messages import Problem, error_answer, on_http_error, on_invalid
from hgclr.serving.middleware import BodyLimit, RequestLog, strict_route
from hgclr.serving.monitoring import Metrics

if TYPE_CHECKING:
    from hgclr.labelling.sitting import Sitting, Task

FILES = Path(__file__).parent / "page"
PEOPLE_FILE = "people.json"
"""File in the output folder with each person's token."""
ONLY_PERSON = "me"
"""Name of the user of a sitting without tokens."""
MOST_LABELS = 100
"""Limit on the labels of an answer."""
LONGEST_NOTE = 2000
BODY_BYTES, BODY_SECONDS = 2**18, 30.0
OWN_PAGES = ("same-origin", "none")
"""Values of Sec-Fetch-Site in a request from our page or from the address bar."""

Labels = Annotated[list[str], Field(max_length=MOST_LABELS)]


class AnswerRequest(BaseModel):
    """The answer of a person to a text; see :class:`~hgclr.labelling.store.Answer`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    document: int = Field(ge=0, lt=2**53)
    kind: Literal["labels", "none", "skip"]
    labels: Labels = []
    refused: Labels = []
    partial: bool = False
    note: str = Field(default="", max_length=LONGEST_NOTE)
    model: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    milliseconds: int = Field(default=0, ge=0, lt=2**53)
    again: bool = Field(default=False, description="Whether an earlier attempt to send this answer failed.")


class TrainRequest(BaseModel):
    """How much to train."""

    model_config = ConfigDict(extra="forbid", strict=True)

    effort: Literal["head", "full"] = "head"


def create_app(sitting: Sitting, output: Path, *, people: Mapping[str, str] | None, hosts: tuple[str, ...]) -> FastAPI:
    """Return the web application of a sitting.

    Args:
        sitting: the sitting; it is closed when the application stops.
        output: the sitting's folder.
        people: names and their tokens; None for one user without a token.
        hosts: allowed values of the Host header besides this machine's names; ``*`` allows any.
    """

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(sitting.close)

    app = FastAPI(
        title="hgclr label",
        version=version("hgclr"),
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lifespan,
        exception_handlers={
            HTTPException: on_http_error,
            RequestValidationError: on_invalid,
            InputError: on_input_error,
        },
    )

    def person(request: Request) -> str:
        """Return who sends a request."""
        if people is None:
            # Without a token, a foreign page could send requests through the user's browser.
            if request.headers.get("sec-fetch-site", "none") not in OWN_PAGES:
                raise Problem("unauthorised", "only the page of this service may send requests")
            return ONLY_PERSON
        scheme, _, given = request.headers.get("authorization", "").encode("latin-1").partition(b" ")
        matches = [name for name, token in people.items() if hmac.compare_digest(given.strip(), token.encode())]
        if scheme.lower() != b"bearer" or not matches:
            raise Problem("unauthorised", "open the page with your personal link")
        return matches[0]

    app.include_router(taxonomy_routes(sitting.taxonomy), dependencies=[Depends(person)])
    app.include_router(_routes(sitting, output, person))
    app.mount("/page", StaticFiles(directory=SHARED_FILES), name="page")
    app.mount("/label", StaticFiles(directory=FILES), name="label")

    @app.get("/")
    async def index() -> Response:
        return FileResponse(FILES / "index.html", headers=PAGE_HEADERS)

    # The middleware added last runs first.
    app.add_middleware(BodyLimit, limit=BODY_BYTES, deadline=BODY_SECONDS)
    # DNS rebinding: a foreign page can point its own host name to 127.0.0.1 and would then read our answers.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*LOCAL_HOSTS, *hosts], www_redirect=False)
    app.add_middleware(RequestLog, metrics=Metrics(version("hgclr"), "label"))
    return app


def _routes(sitting: Sitting, output: Path, person: Callable[[Request], str]) -> APIRouter:
    """Return the endpoints of a sitting. They are no coroutines, because the sitting reads and writes files."""

    def before(request: Request) -> None:
        request.state.user = person(request)
        # A form of a foreign page can send every type but this one.
        if request.method == "POST" and not request.headers.get("content-type", "").startswith("application/json"):
            raise Problem("invalid", "the Content-Type must be application/json", field="Content-Type")

    router = APIRouter(route_class=strict_route(before, MOST_LABELS))
    # A browser keeps answers that it could not send under this name, so that they never reach another sitting.
    name = hashlib.sha256(str(output.resolve()).encode()).hexdigest()[:16]

    def progress_json(user: str) -> dict[str, Any]:
        return sitting.progress(user).to_json() | {"user": user, "sitting": name, "folder": output.resolve().name}

    def task_answer(task: Task | None) -> Response:
        return Response(status_code=204) if task is None else _json(task.to_json())

    @router.get("/next")
    def get_next(request: Request, mode: Literal["all", "disagreements"] = "all", yes_no: bool = False) -> Response:
        """Return the next text for the user; 204 if there is none."""
        return task_answer(sitting.next(request.state.user, mode=mode, yes_no=yes_no))

    @router.post("/answers")
    def add_answer(wanted: AnswerRequest, request: Request) -> Response:
        """Store an answer."""
        user = request.state.user
        lists = {"labels": tuple(wanted.labels), "refused": tuple(wanted.refused)}
        answer = Answer(user=user, **wanted.model_dump(exclude={"again"}) | lists)
        # An answer that arrives again may be stored already: a second copy would need a second undo.
        stored = sitting.store.current([user]) if wanted.again else []
        number = next((one.id for one in stored if replace(one, id=None) == answer), None)
        if number is None:
            number = sitting.answer(answer)
        return _json({"id": number, "progress": progress_json(user)})

    @router.post("/undo")
    def undo(request: Request) -> Response:
        """Take back the user's last answer, and return its text; 204 if there is none."""
        return task_answer(sitting.undo(request.state.user))

    @router.get("/progress")
    def get_progress(request: Request) -> Response:
        """Return the progress of the sitting."""
        return _json(progress_json(request.state.user))

    @router.post("/train")
    def train(wanted: TrainRequest, request: Request) -> Response:
        """Start to train in the background."""
        sitting.retrain(wanted.effort)
        return _json(progress_json(request.state.user))

    return router


def _json(content: Any) -> Response:
    return Response(json_text(content, allow_nan=False, separators=(",", ":")), media_type="application/json")


async def on_input_error(request: Request, error: Exception) -> JSONResponse:
    """Answer a request that the sitting has refused."""
    return error_answer(request.scope, "invalid", str(error))


def read_people(output: Path, names: list[str]) -> dict[str, str]:
    """Return the token of each person, made on the first call; only the owner of the file may read it.

    People of an earlier call keep their tokens, so that their links stay valid when the server is restarted.
    """
    file = output / PEOPLE_FILE
    known: dict[str, str] = read_json(file) if file.exists() else {}
    people = known | {name: secrets.token_urlsafe(24) for name in names if name not in known}
    if people != known:
        file.touch(mode=0o600)
        file.write_text(json_text(people), encoding="utf-8")
        flush(file)
    return {name: people[name] for name in names}
