"""``hgclr export`` and ``hgclr serve``: a model for other programs, or as a web service."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hgclr.cli.console import Console, counting, find_folder, open_classifier, standard_error
from hgclr.cli.options import Model, NewFolder, Reading, file, folder, option, reading_options
from hgclr.errors import InputError, require_extra
from hgclr.files import check_output

if TYPE_CHECKING:
    from hgclr.data import DataFolder

logger = logging.getLogger(__name__)
FOLDABLE = ("stock", "sentence-transformers")
"""Forms for programs without decisions."""
TEXTS = 64
"""Number of texts of --data in the comparison of export and model."""
DOCUMENTS = 3000
"""Number of documents of --data on which the F1 of int8 is measured before it is written."""


@reading_options
def export(
    model: Model,
    to: Annotated[
        Literal["stock", "sentence-transformers", "onnx", "onnx-int8"],
        option("Form to write: stock, sentence-transformers, onnx or onnx-int8.", metavar="FORM"),
    ],
    output: NewFolder,
    reading: Reading,
    data: Annotated[Path | None, folder("Data folder to score on; default for int8: that of the training.")] = None,
    split: Annotated[str, option("Split to score: train, dev or test.")] = "dev",
    fold_thresholds: Annotated[
        bool, option("Add thresholds and temperature to the bias of the head.", "--fold-thresholds")
    ] = False,
    scores_file: Annotated[Path | None, file("Scores for the model card, from hgclr evaluate.", "--scores")] = None,
    licence: Annotated[
        str | None, option("Licence for the model card, such as mit.", "--license", metavar="ID")
    ] = None,
) -> None:
    """Export a model for other programs: transformers, sentence-transformers, or onnxruntime without torch.

    **stock**: a class of transformers; only for models that read the first token. **sentence-transformers**: for any
    pooling; encode returns logits. **onnx**: for onnxruntime. **onnx-int8**: smaller and faster, with rounding errors.
    For int8, hgclr chooses matrix products that stay in fp32, so that it loses at most 0.3 points of F1 on half of dev;
    if no choice does, it writes nothing. It prints the loss on the other half and warns if it exceeds 0.3 points.

    hgclr compares every export with the model, adds a model card, and loads it like the model. With --fold-thresholds
    (stock, sentence-transformers), programs without hgclr can predict every label above 0.5.

    Example: **hgclr export runs/first/model --to onnx-int8 --output first-int8**

    Next: **hgclr predict first-int8 "a text"** or **hgclr serve first-int8**
    """
    from hgclr.cli.tables import print_scores

    check_output(output)
    if to in FOLDABLE:
        require_extra("torch", extra="train", capability="Exporting to transformers")
    elif fold_thresholds:
        raise InputError(
            f"--fold-thresholds is not for --to {to}: hgclr reads the thresholds of such a folder from decisions.json",
            remedy="omit --fold-thresholds",
        )
    else:
        for module in ("torch", "onnxscript", "onnxruntime"):
            require_extra(module, extra="export", capability="Exporting to ONNX")
    place = find_folder(model, data)
    from hgclr.bulk.review import training_data
    from hgclr.export.card import CardScore, model_card, read_scores, read_training, write_card
    from hgclr.inference import HierarchicalClassifier
    from hgclr.inference.loading import load_model

    console = Console()
    # Read and score before writing, so that bad input leaves nothing behind.
    recorded = [] if scores_file is None else [read_scores(scores_file)]
    documents, scores, texts, labelled = None, {}, [], []

    def score(classifier: HierarchicalClassifier, name: str, documents: DataFolder) -> dict[str, Any]:
        with counting(f"{name} on {split}") as progress:
            return classifier.evaluate(documents, split, progress=progress).to_json()

    def change_of(losses: Iterable[float]) -> str:
        micro, macro = (0.0 - 100 * loss for loss in losses)  # 0 is not -0
        return f"Micro-F1 {micro:+.2f}, Macro-F1 {macro:+.2f}"

    if data is not None or to == "onnx-int8":
        classifier = HierarchicalClassifier.load(model)
        if data is not None:
            documents = reading.open(data, taxonomy=classifier.taxonomy)
        elif (found := training_data(place, classifier.taxonomy)) is not None and split in found.splits:
            documents = found
        else:
            logger.warning("int8 is not measured on documents, and can change predictions: give --data my-data")
    if documents is not None:
        scores["torch"] = score(classifier, model, documents)
        labelled = list(islice(documents.documents(split), DOCUMENTS))
        texts = [document.text for document in labelled[:TEXTS]]
    with standard_error().status("writing the model and comparing it with torch"):
        if to == "stock":
            from hgclr.export.stock import export_stock

            result = export_stock(model, output, texts=texts, fold_thresholds=fold_thresholds)
        elif to == "sentence-transformers":
            from hgclr.export.stock import export_sentence_transformers

            result = export_sentence_transformers(model, output, texts=texts, fold_thresholds=fold_thresholds)
        else:
            from hgclr.export.onnx import export_onnx

            result = export_onnx(model, output, int8=to == "onnx-int8", texts=texts, documents=labelled)
    difference, what = result.difference, str(result.to)
    if result.own_class is not None:
        what = f"{result.class_name} of hgclr, because {result.own_class}"
    elif to not in FOLDABLE:
        before, after = (size / 1e6 for size in result.sizes)
        what += f", {after:.1f} MB (in torch: {before:.1f} MB)"
    console.say(f"written: {output}, {what}; README.md in it tells how to use it")
    apart = f"{difference.logit:.2g} in a logit, {difference.probability:.2g} in a probability"
    for kept, losses in result.measured if labelled else ():
        console.say(f"int8, {kept} in fp32: {change_of(losses)} on {-(-len(labelled) // 2)} documents")
    if result.measured and labelled:
        console.say(f"the last on {len(labelled) // 2} others: {change_of(result.lost)}")
    console.say(f"largest difference from the model on {difference.texts} texts: {apart}")
    if documents is not None:
        scores[to] = score(HierarchicalClassifier.load(output), str(output), documents)
        print_scores(f"{documents.path}, {split}", scores, console)
        lost = (scores["torch"][name]["f1"] - scores[to][name]["f1"] for name in ("micro", "macro"))
        console.print(f"change: {change_of(lost)}")
        of_data = str(documents.path.resolve())
        recorded.insert(0, CardScore.from_json(scores[to], of="this folder", data=of_data, split=split))
    written = load_model(output, "cpu")
    card = model_card(
        to if result.own_class is None else "model",
        output.resolve().name,
        written.decisions,
        written.max_length,
        training=read_training(model, len(written.taxonomy)),
        scores=recorded,
        licence=licence,
        folded=result.folded,
    )
    write_card(output, card)


def _option(variable: str, text: str, *names: str, **more: Any) -> Any:
    """Return an option that the environment variable HGCLR_… also sets."""
    return option(text, *names, envvar=f"HGCLR_{variable}", **more)


_request = partial(_option, rich_help_panel="Requests")
_batch = partial(_option, rich_help_panel="Batches")
_limit = partial(_option, rich_help_panel="Limits of a request", min=1)


def serve(
    model: Model,
    host: Annotated[
        str, _option("HOST", "Address to listen on; 0.0.0.0 makes it reachable from other machines.")
    ] = "127.0.0.1",
    port: Annotated[int, _option("PORT", "Port to listen on; 0 is any free port.", min=0, max=65535)] = 8000,
    workers: Annotated[int, _option("WORKERS", "Processes, each with the model in memory.", min=1)] = 1,
    allow_host: Annotated[
        list[str], _request("ALLOW_HOST", "Accept requests for this host name, such as a proxy's; repeatable.")
    ] = [],  # noqa: B006
    max_connections: Annotated[int, _request("MAX_CONNECTIONS", "Open connections; more get 503.", min=1)] = 4096,
    max_queue: Annotated[int, _request("MAX_QUEUE", "Texts in the queue; more get 429.", min=1)] = 1024,
    deadline: Annotated[float, _request("DEADLINE", "Seconds until a request gets 504.", min=0.001)] = 30.0,
    grace: Annotated[int, _request("GRACE", "Seconds to finish requests after SIGTERM or Ctrl-C.", min=0)] = 30,
    log_requests: Annotated[
        bool, _request("LOG_REQUESTS", "Log each request, without its texts.", "--log-requests")
    ] = False,
    batch_tokens: Annotated[
        int | None, _batch("BATCH_TOKENS", "Tokens in a batch; default: the backend's.", min=1)
    ] = None,
    max_wait: Annotated[
        float, _batch("MAX_WAIT_MS", "Milliseconds to wait for a fuller batch.", "--max-wait-ms", min=0.0)
    ] = 2.0,
    body_bytes: Annotated[int, _limit("BODY_BYTES", "Bytes of a body; larger ones get 413.")] = 4 * 2**20,
    texts_per_request: Annotated[int, _limit("TEXTS_PER_REQUEST", "Texts; more get 422.")] = 256,
    characters_per_text: Annotated[int, _limit("CHARACTERS_PER_TEXT", "Characters of a text; more get 422.")] = 20_000,
) -> None:
    """Serve a model over HTTP, with a web page to try it.

    The service answers **POST /predict**, **POST /explain**, **GET /taxonomy** and **GET /model**; the page is at
    **/**, and **/docs** describes every address.

    To require a key, set the environment variable HGCLR_API_KEY, or HGCLR_API_KEY_FILE to a file with the key. There is
    no option for it, because other users of the machine can read command lines.

    Example: **hgclr serve runs/first/model --port 8080**

    Next: open the printed address, or run **curl localhost:8080/predict --json '{"texts": ["a text"]}'**
    """
    import logging
    import os
    from ipaddress import ip_address

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
    errors = standard_error()
    with listen(host, port) as listener:  # a wrong address fails before the model is loaded
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
        if folder.exists() or url_of(model) is not None:  # not a hub name
            folder = folder.resolve()
            name = folder.parent.name if folder.name == "model" else folder.name
        key = "none; only this machine can reach the service"
        if settings.key is not None:
            key = "required: send Authorization: Bearer KEY, or enter it as the password in a browser"
        elif not local:
            key = "[bold yellow]none: everyone who reaches this address can use it[/]; set HGCLR_API_KEY"
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        text = f"page    {url}/\nAPI     {url}/docs\nkey     {key}\nstop    Ctrl-C"
        panel = Panel.fit(text, title=f"hgclr serve {escape(name)}")
        load = partial(open_classifier, model)
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
