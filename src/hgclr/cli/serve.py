"""``hgclr serve``: a model as a web service with a page."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from hgclr.cli import console
from hgclr.cli.options import Model, option
from hgclr.errors import require_extra


def _option(variable: str, text: str, *names: str, **more: Any) -> Any:
    """Return an option that the environment variable HGCLR_… sets, too."""
    return option(text, *names, envvar=f"HGCLR_{variable}", **more)


_request = partial(_option, rich_help_panel="Requests")
_batch = partial(_option, rich_help_panel="Batches")
_limit = partial(_option, rich_help_panel="Limits of a request", min=1)


def serve(
    model: Model,
    host: Annotated[
        str, _option("HOST", "Address to listen on; 0.0.0.0: reachable from other machines.")
    ] = "127.0.0.1",
    port: Annotated[int, _option("PORT", "Port to listen on; 0: any free one.", min=0, max=65535)] = 8000,
    workers: Annotated[int, _option("WORKERS", "Processes, each with the model in memory.", min=1)] = 1,
    allow_host: Annotated[
        list[str], _request("ALLOW_HOST", "Host name that requests may be for, such as a proxy's; repeatable.")
    ] = [],  # noqa: B006
    max_connections: Annotated[int, _request("MAX_CONNECTIONS", "Most open connections; more get 503.", min=1)] = 4096,
    max_queue: Annotated[int, _request("MAX_QUEUE", "Most texts that may wait; more get 429.", min=1)] = 1024,
    deadline: Annotated[float, _request("DEADLINE", "Seconds until a request gets 504.", min=0.001)] = 30.0,
    grace: Annotated[int, _request("GRACE", "Seconds to finish requests after SIGTERM or Ctrl-C.", min=0)] = 30,
    log_requests: Annotated[
        bool, _request("LOG_REQUESTS", "Log each request, without its texts.", "--log-requests")
    ] = False,
    batch_tokens: Annotated[
        int | None, _batch("BATCH_TOKENS", "Tokens computed at a time; default: by the backend.", min=1)
    ] = None,
    max_wait: Annotated[
        float, _batch("MAX_WAIT_MS", "Milliseconds that a text waits for others.", "--max-wait-ms", min=0.0)
    ] = 2.0,
    body_bytes: Annotated[int, _limit("BODY_BYTES", "Largest body; larger ones get 413.")] = 4 * 2**20,
    texts_per_request: Annotated[int, _limit("TEXTS_PER_REQUEST", "Most texts; more get 422.")] = 256,
    characters_per_text: Annotated[int, _limit("CHARACTERS_PER_TEXT", "Longest text; longer ones get 422.")] = 20_000,
) -> None:
    """Serve a model over HTTP, with a page to try it on.

    The service answers **POST /predict**, **POST /explain**, **GET /taxonomy** and **GET /model**; the page is at
    **/**, and **/docs** describes every address.

    To require a key, set the environment variable HGCLR_API_KEY, or HGCLR_API_KEY_FILE to a file that holds it. There
    is no option for it, because other users of the machine can read command lines.

    Example: **hgclr serve runs/first/model --port 8080**

    Next: open the address that it prints, or **curl localhost:8080/predict --json '{"texts": ["a text"]}'**
    """
    import logging
    import os
    from ipaddress import ip_address
    from pathlib import Path

    for module in ("fastapi", "uvicorn", "prometheus_client"):
        require_extra(module, extra="serve", capability="The web service")
    from rich.markup import escape
    from rich.panel import Panel

    from hgclr.errors import url_of
    from hgclr.serving.app import create_app
    from hgclr.serving.monitoring import start_log
    from hgclr.serving.server import listen, run, run_workers, worker_app
    from hgclr.serving.service import Settings, read_key

    start_log(requests=log_requests)
    errors = console.standard_error()
    with listen(host, port) as listener:  # before the model is loaded, which takes longer
        address, port = listener.getsockname()[:2]
        local = ip_address(address).is_loopback
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
            hosts=(host, *allow_host) if local or allow_host else None,
            key=read_key(os.environ),
        )
        name, folder = model, Path(model)
        if folder.exists() or url_of(model) is not None:  # not a name on a hub
            folder = folder.resolve()
            name = folder.parent.name if folder.name == "model" else folder.name
        key = "none; only this machine can reach the service"
        if settings.key is not None:
            key = "needed: Authorization: Bearer …, or as the password in a browser"
        elif not local:
            key = "[bold yellow]none: whoever reaches this address can use it[/]; set HGCLR_API_KEY"
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        text = f"page    {url}/\nAPI     {url}/docs\nkey     {key}\nstop    Ctrl-C"
        panel = Panel.fit(text, title=f"hgclr serve {escape(name)}")
        load = partial(console.open_classifier, model)
        if workers > 1:
            errors.print(panel, soft_wrap=True)
            level = logging.getLogger("hgclr").level
            make = partial(worker_app, load, settings, name, level=level, log_requests=log_requests)
            run_workers(make, settings, listener, workers)
        else:
            with errors.status(f"loading {escape(model)}"):
                app = create_app(load(), settings, name=name)
            errors.print(panel, soft_wrap=True)
            run(app, listener)
    errors.print("stopped")
