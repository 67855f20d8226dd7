"""``hgclr serve``: a model as a web service with a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hgclr.cli.options import Model

if TYPE_CHECKING:
    from hgclr.inference import HierarchicalClassifier

__all__ = ["serve"]

REQUESTS, BATCHES, LIMITS = "Requests", "Batches", "Limits of a request"


def serve(
    model: Model,
    host: Annotated[
        str,
        typer.Option(
            envvar="HGCLR_HOST",
            help="Address to listen on. Only this machine reaches the default; 0.0.0.0: every one that can.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(envvar="HGCLR_PORT", min=0, max=65535, help="Port to listen on; 0: any free one.")
    ] = 8000,
    max_queue: Annotated[
        int,
        typer.Option(
            envvar="HGCLR_MAX_QUEUE",
            min=1,
            rich_help_panel=REQUESTS,
            help="Texts that may wait. A request beyond that is refused at once with 429 and told when to come again.",
        ),
    ] = 1024,
    deadline: Annotated[
        float,
        typer.Option(
            envvar="HGCLR_DEADLINE",
            min=0.001,
            rich_help_panel=REQUESTS,
            help="Seconds after which a request is answered with 504 and its texts are dropped.",
        ),
    ] = 30.0,
    grace: Annotated[
        float,
        typer.Option(
            envvar="HGCLR_GRACE",
            min=0.0,
            rich_help_panel=REQUESTS,
            help="Seconds to finish what is under way after SIGTERM or Ctrl-C; nothing new is taken meanwhile.",
        ),
    ] = 30.0,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            envvar="HGCLR_BATCH_TOKENS",
            min=1,
            rich_help_panel=BATCHES,
            help="Tokens computed at a time, padding included; default: what the backend takes best.",
        ),
    ] = None,
    max_wait: Annotated[
        float,
        typer.Option(
            "--max-wait-ms",
            envvar="HGCLR_MAX_WAIT_MS",
            min=0.0,
            rich_help_panel=BATCHES,
            help="Milliseconds that a text waits at most for others to be computed with.",
        ),
    ] = 2.0,
    body_bytes: Annotated[
        int,
        typer.Option(envvar="HGCLR_BODY_BYTES", min=1, rich_help_panel=LIMITS, help="Size of a body; beyond it 413."),
    ] = 4 * 2**20,
    texts_per_request: Annotated[
        int,
        typer.Option(
            envvar="HGCLR_TEXTS_PER_REQUEST", min=1, rich_help_panel=LIMITS, help="Texts in one; beyond it 422."
        ),
    ] = 256,
    characters_per_text: Annotated[
        int,
        typer.Option(
            envvar="HGCLR_CHARACTERS_PER_TEXT", min=1, rich_help_panel=LIMITS, help="Length of a text; beyond it 422."
        ),
    ] = 20_000,
    log_requests: Annotated[
        bool,
        typer.Option(
            "--log-requests",
            envvar="HGCLR_LOG_REQUESTS",
            rich_help_panel=REQUESTS,
            help="A line for each on standard error: id, endpoint, status, time, number of texts. Never a text.",
        ),
    ] = False,
) -> None:
    """Serve a model over HTTP, with a page to try it on.

    **POST /predict**, **POST /explain**, **GET /taxonomy**, **GET /model**; the page is at **/**, all addresses are
    described at **/docs**. Texts of all requests are computed together; what does not fit in is refused, not hoarded.

    A key, if clients shall need one, is taken from the environment variable HGCLR_API_KEY, or from the file that
    HGCLR_API_KEY_FILE names; never from the command line, where other users of the machine could read it.

    Example: **hgclr serve runs/first/model --port 8080**
    """
    import os

    from hgclr.errors import require_extra

    for module in ("fastapi", "uvicorn", "prometheus_client"):
        require_extra(module, extra="serve", capability="The web service")
    from hgclr.cli.console import open_classifier, standard_error
    from hgclr.serving.app import create_app, listen, run
    from hgclr.serving.settings import Settings, read_key

    settings = Settings(
        max_queue=max_queue,
        batch_tokens=batch_tokens,
        max_wait=max_wait / 1000,
        deadline=deadline,
        body_bytes=body_bytes,
        texts_per_request=texts_per_request,
        characters_per_text=characters_per_text,
        grace=grace,
        key=read_key(os.environ),
    )
    if log_requests:
        _show_requests()
    console = standard_error()
    with listen(host, port) as listener:  # before the model, which takes longer to load than to tell that it is taken
        with console.status(f"loading {model}"):
            classifier = open_classifier(model)
        name = _name(model)
        app = create_app(classifier, settings, name=name)
        address = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        run(app, listener, started=lambda: _announce(name, classifier, address, locked=settings.key is not None))
    console.print("stopped")


def _name(model: str) -> str:
    """Return what to call a model: its folder's name, or that of the run which wrote it, or its name on a hub."""
    from pathlib import Path

    folder = Path(model)
    if not folder.exists():
        return model
    folder = folder.resolve()
    return folder.parent.name if folder.name == "model" else folder.name


def _announce(name: str, classifier: HierarchicalClassifier, address: str, *, locked: bool) -> None:
    """Say where the service is and who may use it."""
    from rich.markup import escape
    from rich.panel import Panel

    from hgclr.cli.console import standard_error

    local = address.startswith(("http://127.", "http://localhost:", "http://[::1]:"))
    if locked:
        key = "needed: Authorization: Bearer …, or as the password in a browser"
    elif local:
        key = "none; only this machine can reach the service"
    else:
        key = "[bold yellow]none: whoever reaches this address can use it[/]; set HGCLR_API_KEY"
    lines = [
        f"[bold]{escape(name)}[/], {len(classifier.taxonomy)} labels",
        f"page    {address}/",
        f"API     {address}/docs",
        f"key     {key}",
        "stop    Ctrl-C",
    ]
    standard_error().print(Panel.fit("\n".join(lines), title="hgclr serve"), soft_wrap=True)


def _show_requests() -> None:
    """Let the log of requests through, which is quieter than the rest without this."""
    import logging

    from hgclr.serving.middleware import ACCESS

    logging.getLogger(ACCESS).setLevel(logging.INFO)
