"""Take the pictures that the docs show of the pages of ``hgclr serve`` and ``hgclr label``.

``python docs/make_screenshots.py --model MODEL --name NAME`` takes those of the service's page; the docs show a model
trained on arXiv abstracts. ``--labelling FOLDER`` takes those of the labelling page, on a copy of the folder; the docs
show the tutorial's. Needs playwright and a chromium on the PATH.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Browser, Page, sync_playwright

from hgclr.inference import HierarchicalClassifier
from hgclr.labelling.app import create_app as create_labelling_app
from hgclr.labelling.sitting import Sitting
from hgclr.serving.app import create_app
from hgclr.serving.server import listen, server_config
from hgclr.serving.service import Settings

IMAGES, TUTORIAL = Path(__file__).parent / "images", Path(__file__).parent / "tutorial"
TEXT = (
    "Gravitational waves from merging neutron stars. We present general relativistic hydrodynamics simulations of"
    " neutron star mergers and study the gravitational waves that the remnant emits. The equation of state of dense"
    " nuclear matter leaves its mark on the spectrum, which future detectors will be able to observe. Our results"
    " constrain the maximum mass of a neutron star and the rate of short gamma-ray bursts."
)
TABLE = """id,abstract,year
1,"We prove a conjecture on the cohomology of symplectic manifolds, and give examples.",2014
2,"A deep network for the segmentation of medical images, trained on few labels.",2019
3,"We observe superconductivity in thin films of a layered material at low temperature.",2021
4,"Gradient descent with momentum finds better minima: a study of large language models.",2023
5,,2020
"""
WIDE, PHONE = {"width": 1200, "height": 900}, {"width": 390, "height": 844}


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a model's folder")
    parser.add_argument("--name", default="model", help="what the page calls it")
    parser.add_argument("--labelling", type=Path, help="the folder of hgclr label")
    options = parser.parse_args()
    program = shutil.which("chromium")
    if program is None:
        parser.error("there is no chromium on the PATH")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        if options.model is not None:
            with serving(options.model, options.name) as address:
                for name, page in pages(browser, address):
                    explain(page)
                    page.screenshot(path=IMAGES / f"page-{name}.png")
                page = browser.new_page(viewport=WIDE, reduced_motion="reduce")
                page.goto(address)
                label_file(page)
                page.screenshot(path=IMAGES / "page-file.png")
        if options.labelling is not None:
            with labelling(options.labelling) as address:
                for name, page in pages(browser, address, height=1080):
                    page.locator("#options button").first.wait_for()
                    page.keyboard.press("Digit2")  # the right one of the tutorial's text
                    page.wait_for_timeout(400)  # until the arrows of the tree have turned
                    page.screenshot(path=IMAGES / f"label-{name}.png")
            with TemporaryDirectory() as place:
                texts, tree = TUTORIAL / "support.csv", TUTORIAL / "support.txt"
                sitting = Sitting.open(Path(place) / "my-labels", texts=texts, taxonomy=tree)
                with labelling_page(sitting) as address:
                    page = browser.new_page(viewport=WIDE | {"height": 640}, reduced_motion="reduce")
                    page.goto(address)
                    page.locator("#options button").first.wait_for()
                    page.wait_for_timeout(400)
                    page.screenshot(path=IMAGES / "label-first.png")
        browser.close()


def pages(browser: Browser, address: str, *, height: int = 900) -> Iterator[tuple[str, Page]]:
    """Yield the name of each screen and a page on it; ``height`` is that of a wide screen."""
    wide = WIDE | {"height": height}
    for name, screen, scheme in (("light", wide, "light"), ("dark", wide, "dark"), ("phone", PHONE, "light")):
        touch = name == "phone"
        page = browser.new_page(
            viewport=screen, color_scheme=scheme, reduced_motion="reduce", is_mobile=touch, has_touch=touch
        )
        page.goto(address)
        yield name, page
        page.close()


def explain(page: Page) -> None:
    """Light the tree up for a text, and mark the words of its last label."""
    page.get_by_label("Decoding rule").select_option("closure")
    page.get_by_label("Threshold").fill("0.2")
    page.get_by_label("Text to classify").fill(TEXT)
    page.get_by_role("treeitem", name=", predicted").last.click()
    page.locator("#why-words mark").first.wait_for()


def label_file(page: Page) -> None:
    """Label a table."""
    page.get_by_role("tab", name="A file").click()
    page.get_by_label("Decoding rule").select_option("best-path")
    table = {"name": "abstracts.csv", "mimeType": "text/csv", "buffer": TABLE.encode()}
    page.get_by_label("Choose a file").set_input_files(table)
    page.get_by_role("button", name="Label the file").click()
    page.get_by_role("link", name="Download").wait_for()


@contextmanager
def labelling(folder: Path) -> Iterator[str]:
    """Serve a copy of a labelling folder; yield the address."""
    with TemporaryDirectory() as place:
        copy = Path(shutil.copytree(folder, Path(place) / folder.name))
        with labelling_page(Sitting.open(copy)) as address:
            yield address


@contextmanager
def labelling_page(sitting: Sitting) -> Iterator[str]:
    """Serve a sitting for one person; yield the address."""
    app = create_labelling_app(sitting, sitting.store.folder, people=None, hosts=("127.0.0.1",))
    with listening(app, Settings()) as address:
        yield address


@contextmanager
def serving(model: str, name: str) -> Iterator[str]:
    """Serve a model on a free port; yield the address."""
    app = create_app(HierarchicalClassifier.load(model), name=name)
    with listening(app, app.state.service.settings) as address:
        app.state.service.engine.warm.wait()
        yield address


@contextmanager
def listening(app: FastAPI, settings: Settings) -> Iterator[str]:
    """Run an application on a free port; yield the address."""
    listener: socket.socket = listen("127.0.0.1", 0)
    server = uvicorn.Server(server_config(app, settings))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    main()
