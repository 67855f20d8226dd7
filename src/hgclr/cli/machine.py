"""``hgclr doctor`` and ``hgclr encoders``: check this machine, and get encoders from the package index."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.filesize import decimal
from rich.text import Text

from hgclr.cli.console import Console, print_table, results, share_done, standard_error, write_result
from hgclr.cli.options import JsonFile

encoders = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Get pretrained encoders from the package index, without a model hub.\n\nExample: **hgclr encoders list**",
)
HUB_SECONDS, INDEX_SECONDS = 5, 10
INSTALL = "run pip install -c constraints.txt '.{}' in the checkout of hgclr"
# In another process, because a damaged torch may kill the process that imports it.
_DEVICES = """
import json, torch
names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
if not names and torch.accelerator.is_available():
    names = [torch.accelerator.current_accelerator().type]
bf16 = any(torch.cpu.get_capabilities().get(name) for name in ("amx_bf16", "avx512_bf16"))
print(json.dumps({"names": names, "threads": torch.get_num_threads(), "bf16": bf16}))
"""


@dataclass(frozen=True)
class HealthCheck:
    """One line of the report; hgclr works with a ``warning``, but not with a ``problem``."""

    subject: str
    state: Literal["ok", "warning", "problem"]
    detail: str
    remedy: str = ""


def doctor(json_file: JsonFile = None) -> None:
    """Check versions, devices, model hub, package index and cache, with a remedy for each finding.

    The exit code is 1 if something that hgclr needs is missing or broken.

    Example: **hgclr doctor**

    Next: follow the remedies, or start with **hgclr quickstart**
    """
    from hgclr.provenance import machine

    with standard_error().status("checking"):
        known = machine()
        checks = examine(known)
    console = results(json_file)
    for check in checks:
        mark, style = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "problem": ("✗", "bold red")}[check.state]
        console.print(Text.assemble((mark, style), f" {check.subject}: {check.detail}"), soft_wrap=True)
        if check.remedy:
            console.say(f"    → {check.remedy}", style)
    write_result(json_file, {"machine": known, "findings": [asdict(check) for check in checks]})
    if any(check.state == "problem" for check in checks):
        raise typer.Exit(1)


def examine(known: dict[str, Any]) -> list[HealthCheck]:
    """Return all checks; ``known`` is the result of :func:`hgclr.provenance.machine`."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=3) as pool:  # they mostly wait for the network
        hub, index, devices = pool.submit(_hub), pool.submit(_index), pool.submit(_devices)
        reached = index.result().state == "ok"
        cores = f"{known['cores']} cores, " if known["cores"] else ""
        memory = f", {decimal(known['memory_bytes'])} memory" if known["memory_bytes"] else ""
        changes = " with changes" if known["modified"] else ""
        commit = f" at {known['commit'][:10]}{changes}" if known["commit"] else ""
        version = f"{known['packages']['hgclr'] or 'unknown version'}{commit}, Python {known['python']}"
        return [
            HealthCheck("hgclr", "ok", version),
            *_packages(),
            HealthCheck("machine", "ok", f"{known['processor']}, {cores}{known['threads']} threads{memory}"),
            devices.result(),
            hub.result(),
            index.result(),
            _encoders(reached),
            _cache(),
        ]


def _packages() -> Iterator[HealthCheck]:
    """Compare installed packages with the requirements, for the base and each extra."""
    from packaging.requirements import Requirement

    try:
        required = importlib.metadata.requires("hgclr") or []
    except importlib.metadata.PackageNotFoundError:
        yield HealthCheck("packages", "problem", "hgclr is not installed", INSTALL.format(""))
        return
    parts: dict[str, list[Requirement]] = {}
    for text in required:
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", text)
        if (requirement := Requirement(text)).specifier:  # not hgclr[train]
            parts.setdefault(extra[1] if extra else "", []).append(requirement)
    parts.pop("dev", None)
    for name, requirements in parts.items():
        subject, remedy = f"extra {name}" if name else "base", INSTALL.format(f"[{name}]" if name else "")
        present, missing, old = [], [], []
        for each in requirements:
            try:
                version = importlib.metadata.version(each.name)
            except importlib.metadata.PackageNotFoundError:
                missing.append(each.name)
                continue
            present.append(f"{each.name} {version}")
            if not each.specifier.contains(version, prereleases=True):
                old.append(f"{each.name} {version} is not {each.specifier}")
        if old:
            yield HealthCheck(subject, "problem", ", ".join(old), remedy)
        elif missing:
            state: Literal["warning", "problem"] = "warning" if name else "problem"
            yield HealthCheck(subject, state, f"not installed: {', '.join(missing)}", remedy)
        else:
            yield HealthCheck(subject, "ok", ", ".join(present))


def _devices() -> HealthCheck:
    if importlib.util.find_spec("torch") is None:
        return HealthCheck("devices", "warning", "unknown without torch", INSTALL.format("[train]"))
    works, output = _output([sys.executable, "-P", "-c", _DEVICES], seconds=120)
    last = output.splitlines()[-1] if output else "no output"
    if not works or not last.startswith("{"):
        return HealthCheck("devices", "problem", f"torch does not work: {last}", "reinstall torch")
    found = json.loads(last)
    names = ", ".join(found["names"]) or "no GPU"
    faster = "; --set training.precision=bf16 trains faster" if found["bf16"] and not found["names"] else ""
    return HealthCheck("devices", "ok", f"{names}; torch uses {found['threads']} CPU threads{faster}")


def _hub() -> HealthCheck:
    """Send a request to the model hub that huggingface_hub is set to."""
    import http.client
    import urllib.request

    remedy = "use local folders or packaged encoders (hgclr encoders list), or set HF_ENDPOINT"
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return HealthCheck("model hub", "warning", "turned off by HF_HUB_OFFLINE", f"unset it, or {remedy}")
    try:
        request = urllib.request.Request(constants.ENDPOINT, method="HEAD", headers={"User-Agent": "hgclr"})
        with urllib.request.urlopen(request, timeout=HUB_SECONDS):
            return HealthCheck("model hub", "ok", f"{constants.ENDPOINT} answers")
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)  # urllib wraps the cause
        return HealthCheck("model hub", "warning", f"{constants.ENDPOINT} does not answer ({reason})", remedy)


def _index() -> HealthCheck:
    """Look up the default encoder in the package index with pip, and so with the user's settings."""
    from hgclr.encoders import DEFAULT_ENCODER, ENCODERS

    package = ENCODERS[DEFAULT_ENCODER].requirements[0].partition("==")[0]
    # Without a retry, pip does not say that the connection failed.
    options = ["--no-input", "--disable-pip-version-check", "--retries=1", f"--timeout={INDEX_SECONDS / 2:g}"]
    command = [sys.executable, "-P", "-m", "pip", "index", "versions", package, *options]
    works, output = _output(command, seconds=INDEX_SECONDS)
    if not works:
        reason = "cannot be reached" if "connection broken" in output else f"no {package} ({output.splitlines()[-1]})"
        return HealthCheck("package index", "warning", reason, "check the network and pip config list")
    return HealthCheck("package index", "ok", f"answers and has {package}")


def _encoders(index_answers: bool) -> HealthCheck:
    from hgclr.encoders import DEFAULT_ENCODER, ENCODERS, cached_encoder

    cached = [name for name in ENCODERS if cached_encoder(name)]
    if cached:
        return HealthCheck("packaged encoders", "ok", f"{', '.join(cached)} in the cache")
    remedy = f"run hgclr encoders get {DEFAULT_ENCODER}" + ("" if index_answers else " when the index answers")
    detail = "none in the cache" + ("; downloaded on first use" if index_answers else ", and the index does not answer")
    return HealthCheck("packaged encoders", "warning", detail, remedy)


def _cache() -> HealthCheck:
    from hgclr.encoders import folder_bytes
    from hgclr.files import cache_dir

    place = cache_dir()
    folders = sorted(path for path in place.iterdir() if path.is_dir()) if place.is_dir() else []
    sizes = [f"{folder.name} {decimal(folder_bytes(folder))}" for folder in folders]
    return HealthCheck("cache", "ok", f"{place}: {', '.join(sizes) or 'empty'}")


def _output(command: list[str], *, seconds: float) -> tuple[bool, str]:
    """Run a command; return whether it succeeded, and its output or its errors."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return False, f"no answer within {seconds:g} s"
    errors = done.stderr.strip() or f"exit code {done.returncode}"
    return done.returncode == 0, errors if done.returncode else done.stdout


@encoders.command("list")
def list_encoders() -> None:
    """List the encoders with their size and licence, and whether they are in the cache.

    Example: **hgclr encoders list**

    Next: **hgclr encoders get all-MiniLM-L6-v2**
    """
    from hgclr.encoders import DEFAULT_ENCODER, ENCODERS, cached_encoder

    rows = [
        (
            f"{encoder.name} (default)" if encoder.name == DEFAULT_ENCODER else encoder.name,
            encoder.architecture,
            decimal(encoder.download_bytes),
            encoder.licence,
            "yes" if cached_encoder(encoder.name) else "no",
        )
        for encoder in ENCODERS.values()
    ]
    print_table(Console(), ("encoder", "architecture", "download", "licence", "cached"), rows)


@encoders.command("get")
def get(name: Annotated[str, typer.Argument(metavar="NAME", help="A name from hgclr encoders list.")]) -> None:
    """Download an encoder to the cache, check it, and print its folder.

    Training downloads its encoder when needed; use this command to prepare a machine that will be offline.

    Example: **hgclr encoders get all-MiniLM-L6-v2**

    Next: **hgclr train my-data --set model.encoder=all-MiniLM-L6-v2**
    """
    typer.echo(fetch_with_bar(name))


def fetch_with_bar(name: str) -> Path:
    """Download an encoder with a progress bar; return its folder."""
    from hgclr.encoders import fetch_encoder

    with share_done(f"{name}: megabytes", 10**6) as progress:
        return fetch_encoder(name, progress)
