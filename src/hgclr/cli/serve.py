"""``hgclr serve``: a model as a web service with a page."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hgclr.cli.options import Model

__all__ = ["serve"]

REQUESTS, BATCHES, LIMITS = "Requests", "Batches", "Limits of a request"


def _option(text: str, variable: str, panel: str | None = None, name: str | None = None, **limits: Any) -> Any:
    """Return an option that can be set by the environment variable HGCLR_…, too."""
    names = () if name is None else (name,)
    return typer.Option(*names, envvar=f"HGCLR_{variable}", rich_help_panel=panel, help=text, **limits)


def serve(
    model: Model,
    host: Annotated[
        str,
        _option("Address to listen on. Only this machine reaches the default; 0.0.0.0: every one that can.", "HOST"),
    ] = "127.0.0.1",
    port: Annotated[int, _option("Port to listen on; 0: any free one.", "PORT", min=0, max=65535)] = 8000,
    workers: Annotated[
        int,
        _option(
            "Processes that share the address and the cores, each with the model in memory and limits of its own; one"
            " that dies is replaced.",
            "WORKERS",
            min=1,
        ),
    ] = 1,
    allow_host: Annotated[
        list[str],
        _option(
            "Name that requests may be for, such as that of a proxy on this machine; can be repeated. A service on"
            " 127.0.0.1 answers otherwise only to names of this machine.",
            "ALLOW_HOST",
            REQUESTS,
        ),
    ] = [],  # noqa: B006
    max_connections: Annotated[
        int,
        _option(
            "Open connections; one more takes the place of the one that is idle longest, or is refused.",
            "MAX_CONNECTIONS",
            REQUESTS,
            min=1,
        ),
    ] = 512,
    max_queue: Annotated[
        int,
        _option(
            "Texts that may wait. A request beyond that is refused at once with 429 and told when to come again.",
            "MAX_QUEUE",
            REQUESTS,
            min=1,
        ),
    ] = 1024,
    deadline: Annotated[
        float,
        _option(
            "Seconds after which a request is answered with 504 and its texts are dropped.",
            "DEADLINE",
            REQUESTS,
            min=0.001,
        ),
    ] = 30.0,
    grace: Annotated[
        float,
        _option(
            "Seconds to finish what is under way after SIGTERM or Ctrl-C; nothing new is taken meanwhile.",
            "GRACE",
            REQUESTS,
            min=0.0,
        ),
    ] = 30.0,
    batch_tokens: Annotated[
        int | None,
        _option(
            "Tokens computed at a time, padding included; default: what the backend takes best.",
            "BATCH_TOKENS",
            BATCHES,
            min=1,
        ),
    ] = None,
    max_wait: Annotated[
        float,
        _option(
            "Milliseconds that a text waits at most for others to be computed with.",
            "MAX_WAIT_MS",
            BATCHES,
            "--max-wait-ms",
            min=0.0,
        ),
    ] = 2.0,
    body_bytes: Annotated[int, _option("Size of a body; beyond it 413.", "BODY_BYTES", LIMITS, min=1)] = 4 * 2**20,
    texts_per_request: Annotated[
        int, _option("Texts in one; beyond it 422.", "TEXTS_PER_REQUEST", LIMITS, min=1)
    ] = 256,
    characters_per_text: Annotated[
        int, _option("Length of a text; beyond it 422.", "CHARACTERS_PER_TEXT", LIMITS, min=1)
    ] = 20_000,
    log_requests: Annotated[
        bool,
        _option(
            "A line for each on standard error: time, id, endpoint, status, duration, number of texts. Never a text.",
            "LOG_REQUESTS",
            REQUESTS,
            "--log-requests",
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
    import logging
    import os
    from functools import partial
    from ipaddress import ip_address

    from hgclr.errors import require_extra

    for module in ("fastapi", "uvicorn", "prometheus_client"):
        require_extra(module, extra="serve", capability="The web service")
    from hgclr.cli.console import open_classifier, standard_error
    from hgclr.serving.app import create_app
    from hgclr.serving.monitoring import start_log
    from hgclr.serving.server import listen, run
    from hgclr.serving.settings import Settings, read_key
    from hgclr.serving.workers import Deployment, run_workers

    start_log(requests=log_requests)
    console = standard_error()
    with listen(host, port) as listener:  # before the model, which takes longer to load than to tell that it is taken
        local = ip_address(listener.getsockname()[0]).is_loopback
        settings = Settings(
            max_queue=max_queue,
            batch_tokens=batch_tokens,
            max_wait=max_wait / 1000,
            deadline=deadline,
            body_bytes=body_bytes,
            texts_per_request=texts_per_request,
            characters_per_text=characters_per_text,
            grace=grace,
            max_connections=max_connections,
            hosts=tuple(allow_host) if local or allow_host else None,
            key=read_key(os.environ),
        )
        name = _name(model)
        address = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        announce = partial(_announce, name, address, workers=workers, local=local, locked=settings.key is not None)
        if workers > 1:
            level = logging.getLogger("hgclr").level
            load = partial(open_classifier, model)
            deployment = Deployment(load, settings, name, level=level, log_requests=log_requests)
            run_workers(deployment, listener, workers, started=announce)
        else:
            with console.status(f"loading {model}"):
                classifier = open_classifier(model)
            app = create_app(classifier, settings, name=name)
            run(app, listener, started=lambda: announce(len(classifier.taxonomy)))
    console.print("stopped")


def _name(model: str) -> str:
    """Return what to call a model: its folder's name, or that of the run which wrote it, or its name on a hub."""
    from pathlib import Path

    from hgclr.urls import url_of

    folder = Path(model)
    if not folder.exists() and url_of(model) is None:
        return model
    folder = folder.resolve()
    return folder.parent.name if folder.name == "model" else folder.name


def _announce(name: str, address: str, labels: int, *, workers: int, local: bool, locked: bool) -> None:
    """Say where the service is and who may use it."""
    from rich.markup import escape
    from rich.panel import Panel

    from hgclr.cli.console import standard_error

    if locked:
        key = "needed: Authorization: Bearer …, or as the password in a browser"
    elif local:
        key = "none; only this machine can reach the service"
    else:
        key = "[bold yellow]none: whoever reaches this address can use it[/]; set HGCLR_API_KEY"
    lines = [
        f"[bold]{escape(name)}[/], {labels} labels" + (f", {workers} workers" if workers > 1 else ""),
        f"page    {address}/",
        f"API     {address}/docs",
        f"key     {key}",
        "stop    Ctrl-C",
    ]
    standard_error().print(Panel.fit("\n".join(lines), title="hgclr serve"), soft_wrap=True)
