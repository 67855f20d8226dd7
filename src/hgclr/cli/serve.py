"""``hgclr serve``: a model as a web service with a page."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from hgclr.cli import console
from hgclr.cli.options import Model, option
from hgclr.errors import require_extra


def _option(variable: str, text: str, *names: str, **more: Any) -> Any:
    """Return an option that can be set by the environment variable HGCLR_…, too."""
    return option(text, *names, envvar=f"HGCLR_{variable}", **more)


_request = partial(_option, rich_help_panel="Requests")
_batch = partial(_option, rich_help_panel="Batches")
_limit = partial(_option, rich_help_panel="Limits of a request", min=1)


def serve(
    model: Model,
    host: Annotated[
        str,
        _option("HOST", "Address to listen on. Only this machine reaches the default; with 0.0.0.0 others do, too."),
    ] = "127.0.0.1",
    port: Annotated[int, _option("PORT", "Port to listen on; 0: any free one.", min=0, max=65535)] = 8000,
    workers: Annotated[
        int,
        _option("WORKERS", "Processes, each with the model and limits of its own; one that dies is replaced.", min=1),
    ] = 1,
    allow_host: Annotated[
        list[str],
        _request(
            "ALLOW_HOST",
            "Host name that requests may be for, such as that of a proxy on this machine; repeatable. Otherwise a"
            " service on 127.0.0.1 answers only to names of this machine.",
        ),
    ] = [],  # noqa: B006
    max_connections: Annotated[
        int,
        _request(
            "MAX_CONNECTIONS",
            "Most open connections; one more takes the place of the one that is idle longest, or is refused.",
            min=1,
        ),
    ] = 512,
    max_queue: Annotated[
        int, _request("MAX_QUEUE", "Most texts that may wait; a request beyond is refused at once with 429.", min=1)
    ] = 1024,
    deadline: Annotated[
        float,
        _request("DEADLINE", "Seconds until a request is answered with 504 and its texts are dropped.", min=0.001),
    ] = 30.0,
    grace: Annotated[
        float, _request("GRACE", "Seconds to finish requests after SIGTERM or Ctrl-C; no new ones are taken.", min=0.0)
    ] = 30.0,
    batch_tokens: Annotated[
        int | None, _batch("BATCH_TOKENS", "Tokens computed at a time, with padding; default: by the backend.", min=1)
    ] = None,
    max_wait: Annotated[
        float, _batch("MAX_WAIT_MS", "Milliseconds that a text waits at most for others.", "--max-wait-ms", min=0.0)
    ] = 2.0,
    body_bytes: Annotated[int, _limit("BODY_BYTES", "Largest body; answered with 413 beyond it.")] = 4 * 2**20,
    texts_per_request: Annotated[int, _limit("TEXTS_PER_REQUEST", "Most texts; answered with 422 beyond it.")] = 256,
    characters_per_text: Annotated[
        int, _limit("CHARACTERS_PER_TEXT", "Longest text; answered with 422 beyond it.")
    ] = 20_000,
    log_requests: Annotated[
        bool,
        _request(
            "LOG_REQUESTS",
            "Log each on standard error: time, id, endpoint, status, duration, number of texts; never a text.",
            "--log-requests",
        ),
    ] = False,
) -> None:
    """Serve a model over HTTP, with a page to try it on.

    The service answers **POST /predict**, **POST /explain**, **GET /taxonomy** and **GET /model**; the page is at
    **/**, and **/docs** describes every address. Texts of all requests are computed together; what does not fit is
    refused, not hoarded.

    To require a key of clients, set the environment variable HGCLR_API_KEY, or name a file that holds it in
    HGCLR_API_KEY_FILE; a key is never given on the command line, where other users of the machine could read it.

    Example: **hgclr serve runs/first/model --port 8080**

    Next: open the address that it prints, or **curl localhost:8080/predict --json '{"texts": ["a text"]}'**
    """
    import logging
    import os
    from ipaddress import ip_address

    for module in ("fastapi", "uvicorn", "prometheus_client"):
        require_extra(module, extra="serve", capability="The web service")
    from hgclr.serving.app import create_app
    from hgclr.serving.monitoring import start_log
    from hgclr.serving.server import listen, run
    from hgclr.serving.settings import Settings, read_key
    from hgclr.serving.workers import Deployment, run_workers

    start_log(requests=log_requests)
    errors = console.standard_error()
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
            load = partial(console.open_classifier, model)
            deployment = Deployment(load, settings, name, level=level, log_requests=log_requests)
            run_workers(deployment, listener, workers, started=announce)
        else:
            with errors.status(f"loading {model}"):
                classifier = console.open_classifier(model)
            app = create_app(classifier, settings, name=name)
            run(app, listener, started=lambda: announce(len(classifier.taxonomy)))
    errors.print("stopped")


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
    console.standard_error().print(Panel.fit("\n".join(lines), title="hgclr serve"), soft_wrap=True)
