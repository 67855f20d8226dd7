"""Take the pictures of the page that the docs show: ``python docs/make_screenshots.py MODEL --name NAME``.

Needs playwright, a chromium on the PATH, and a model: those in the docs show one trained on arXiv abstracts.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from playwright.sync_api import Page, sync_playwright

from hgclr.inference import HierarchicalClassifier
from hgclr.serving.app import create_app
from hgclr.serving.server import listen, server_config

IMAGES = Path(__file__).parent / "images"
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
    parser.add_argument("model", help="a model's folder")
    parser.add_argument("--name", default="model", help="what the page calls it")
    options = parser.parse_args()
    program = shutil.which("chromium")
    if program is None:
        parser.error("there is no chromium on the PATH")
    with serving(options.model, options.name) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for name, screen, scheme in (("light", WIDE, "light"), ("dark", WIDE, "dark"), ("phone", PHONE, "light")):
            page = browser.new_page(viewport=screen, color_scheme=scheme, reduced_motion="reduce")
            page.goto(address)
            explain(page)
            page.screenshot(path=IMAGES / f"page-{name}.png")
            page.close()
        page = browser.new_page(viewport=WIDE, reduced_motion="reduce")
        page.goto(address)
        label_file(page)
        page.screenshot(path=IMAGES / "page-file.png")
        browser.close()


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
def serving(model: str, name: str) -> Iterator[str]:
    """Serve a model on a free port; yield the address."""
    app = create_app(HierarchicalClassifier.load(model), name=name)
    listener: socket.socket = listen("127.0.0.1", 0)
    server = uvicorn.Server(server_config(app, app.state.service.settings))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        app.state.service.engine.warm.wait()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    main()
