"""``hgclr label``: label texts at the keyboard, with a model that learns meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hgclr.cli.console import share_done, standard_error
from hgclr.cli.options import Seed, TextColumn, file, folder, option
from hgclr.errors import InputError, require_extra

HELP = """Label texts on a page in the browser, with a model that learns meanwhile.

No labels are needed to begin. The model suggests paths of the label tree and chooses the texts from which it learns
most; a random sample of 15 % becomes dev and test. **hgclr label start --help** lists the options of the page.

Example: **hgclr label texts.csv --taxonomy tree.json --output my-labels**

Next: **hgclr label export my-labels --output my-data**
"""


class StartByDefault(TyperGroup):
    """A group whose command ``start`` is meant where no other command is named."""

    default = "start"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=StartByDefault, no_args_is_help=True, rich_markup_mode="markdown", help=HELP)


@app.command(hidden=True)
def start(
    output: Annotated[Path, folder("Folder for the answers; one of an earlier sitting is continued.")],
    texts: Annotated[
        Path | None, typer.Argument(metavar="TEXTS", help="Table with the texts; not needed to continue.")
    ] = None,
    taxonomy: Annotated[Path | None, file("The label tree; not needed to continue.")] = None,
    text_column: TextColumn = None,
    model: Annotated[Path | None, folder("Model that makes the first suggestions.")] = None,
    data: Annotated[Path | None, folder("Data folder with texts that are labelled already.")] = None,
    encoder: Annotated[str, option("Encoder that turns the texts into vectors.")] = "all-MiniLM-L6-v2",
    seed: Seed = 0,
    people: Annotated[
        str | None, option("Names of several people, each of whom gets a personal link.", metavar="A,B")
    ] = None,
    host: Annotated[str, option("Address to listen on; any but this machine's needs --people.")] = "127.0.0.1",
    port: Annotated[int, option("Port to listen on; 0 is any free port.", min=0, max=65535)] = 8001,
    browser: Annotated[bool, option("Open the page in the browser.", "--browser/--no-browser")] = True,
) -> None:
    """Open the page on which texts are labelled.

    Example: **hgclr label texts.csv --taxonomy tree.json --output my-labels**

    Next: **hgclr label status my-labels**
    """
    import webbrowser
    from ipaddress import ip_address
    from threading import Timer

    for module in ("fastapi", "uvicorn", "prometheus_client"):
        require_extra(module, extra="serve", capability="The labelling page")
    from rich.markup import escape
    from rich.panel import Panel

    from hgclr.labelling.app import create_app, read_people
    from hgclr.labelling.sitting import Sitting
    from hgclr.serving.monitoring import start_log
    from hgclr.serving.server import listen, run
    from hgclr.serving.service import Settings

    names = [name.strip() for name in (people or "").split(",") if name.strip()]
    start_log()
    errors = standard_error()
    with listen(host, port) as listener:  # a wrong address fails before the texts are read
        address, port = listener.getsockname()[:2]
        local = ip_address(address).is_loopback
        if not local and not names:
            raise InputError(f"everyone who reaches {host} could read the texts", remedy="give names with --people")
        with share_done("texts") as progress:
            sitting = Sitting.open(
                output,
                texts=texts,
                taxonomy=taxonomy,
                model=model,
                data=data,
                encoder=encoder,
                seed=seed,
                text_column=text_column,
                progress=progress,
            )
        tokens = read_people(output, names) if names else None
        app = create_app(sitting, output, people=tokens, hosts=(host,) if local else ("*",))
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
        links = {name: f"{url}?token={token}" for name, token in tokens.items()} if tokens else {"page": url}
        width = max(map(len, (*links, "stop")))
        lines = [f"{escape(name.ljust(width))}  {link}" for name, link in links.items()]
        title = f"hgclr label {escape(str(output))}"
        errors.print(Panel.fit("\n".join([*lines, f"{'stop'.ljust(width)}  Ctrl-C"]), title=title), soft_wrap=True)
        if browser:
            Timer(0.5, webbrowser.open, [next(iter(links.values()))]).start()
        run(app, listener, Settings())
    errors.print("stopped")
