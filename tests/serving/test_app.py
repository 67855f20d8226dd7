"""The endpoints: the same predictions as the library's, the model and its tree, and pages that load nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest

from hgclr.decisions.review import best_paths, review
from hgclr.inference import HierarchicalClassifier
from hgclr.serving.app import FILES, api_page, create_app
from hgclr.serving.service import Settings
from support.fake_service import LONGEST, TREE, WORDS, WordBackend, make_classifier, served

TEXTS = ["atom", "a", "lens of a laser", "judge " * 30, "goal boat judge", "court court court court", " \n"]


def test_probabilities_are_those_of_each_text_alone(client: httpx.Client) -> None:
    def expected(text: str) -> np.ndarray:
        """The probabilities of a text, word by word."""
        read = ["[CLS]", *text.split()[: LONGEST - 2], "[SEP]"]
        rows = [WORDS.index(word if word in WORDS else "[UNK]") for word in read]
        return 1 / (1 + np.exp(-sum(WordBackend().table[row].astype(float) for row in rows)))

    def probabilities(texts: list[str]) -> list[list[float]]:
        answer = client.post("/predict", json={"texts": texts, "probabilities": True}).json()
        rows = [prediction["probabilities"] for prediction in answer["predictions"]]
        assert all(tuple(row) == TREE.ids for row in rows)
        return [list(row.values()) for row in rows]

    *texts, blank = TEXTS
    together = probabilities(texts)
    np.testing.assert_allclose(together, [expected(text) for text in texts], atol=6e-5)  # 4 digits
    np.testing.assert_allclose(together, [probabilities([text])[0] for text in texts], atol=1e-4)
    assert probabilities([blank]) == [[0.0] * len(TREE)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"threshold": 0.1},
        {"rule": "closure", "threshold": 0.7},
        {"rule": "top-k-paths", "paths": 2},
        {"rule": "best-path", "abstain_below": 0.9},
    ],
)
def test_predictions_are_those_of_the_library(client: httpx.Client, options: dict[str, object]) -> None:
    answer = client.post("/predict", json={"texts": TEXTS, **options}).json()
    assert answer["predictions"] == [one.to_json() for one in make_classifier().predict(TEXTS, **options)]
    assert answer["seconds"] > 0


def test_a_text_that_cannot_be_read_fails_alone(client: httpx.Client) -> None:
    body = rb'{"texts": ["atom", "a\ud800", "nul\u0000", "lens"]}'
    answer = client.post("/predict", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200
    first, second, third, fourth = answer.json()["predictions"]
    assert second["error"]["type"] == third["error"]["type"] == "invalid"
    assert [first, fourth] == client.post("/predict", json={"texts": ["atom", "lens"]}).json()["predictions"]


def test_too_many_probabilities_are_refused(monkeypatch: pytest.MonkeyPatch, client: httpx.Client) -> None:
    monkeypatch.setattr("hgclr.serving.app.PROBABILITIES", 10)
    answer = client.post("/predict", json={"texts": ["a", "b", "c"], "probabilities": True})
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "probabilities")
    assert client.post("/predict", json={"texts": ["a", "b"], "probabilities": True}).status_code == 200


def test_a_review_has_a_score_and_the_best_paths(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"threshold": 0.3}
    answer = client.post("/predict", json={"texts": [*TEXTS, "a\0"], "review": True, **options}).json()
    *reviewed, broken = answer["predictions"]
    assert list(broken) == ["error"]
    classifier = make_classifier()
    decisions = classifier.decisions.changed(**options)
    probabilities = classifier.predict_proba(TEXTS)
    found = review(decisions, probabilities)
    paths = best_paths(probabilities, decisions.decoder, 3)
    for place, prediction in enumerate(reviewed):
        assert prediction["review"] == {
            "score": pytest.approx(found.score[place], abs=1e-4),
            "reason": found.reason[place],
        }
        ends = [(label["id"], label["probability"]) for label in prediction["suggestions"]]
        assert ends == [(TREE.ids[end], pytest.approx(probability, abs=1e-4)) for end, probability in paths[place]]
        assert [label["path"] for label in prediction["suggestions"]] == [
            list(TREE.path_names(end)) for end, _ in paths[place]
        ]
    plain = client.post("/predict", json={"texts": TEXTS, **options}).json()["predictions"]
    assert [row | {"review": None, "suggestions": []} for row in plain] == [
        row | {"review": None, "suggestions": []} for row in reviewed
    ]
    monkeypatch.setattr("hgclr.serving.app.PROBABILITIES", 10)
    refused = client.post("/predict", json={"texts": ["a", "b", "c"], "review": True})
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "review")


def test_an_unknown_field_names_the_one_that_was_meant(client: httpx.Client) -> None:
    for path, field, meant in (
        ("/predict", "txt", "text"),
        ("/explain", "label", "labels"),
        ("/predict", "zz", "abstain_below"),
    ):
        error = client.post(path, json={"text": "a", field: "b"}).json()["error"]
        assert error["field"] == field
        assert meant in error["message"]


def test_labels_are_data_and_never_paths(client: httpx.Client) -> None:
    label = TREE.ids[-1]
    assert label == "../sports"
    explained = client.post("/explain", json={"text": "goal", "labels": [label]}).json()
    assert [row["id"] for row in explained["labels"]] == [label]
    for field, value in (("labels", ["law", "../../etc/passwd"]), ("method", "integrated"), ("text", "a\0")):
        unknown = client.post("/explain", json={"text": "goal", field: value})
        assert unknown.status_code == 422
        assert unknown.json()["error"]["field"].startswith(field)


def test_the_label_tree_has_an_etag(client: httpx.Client) -> None:
    answer = client.get("/taxonomy")
    rows = [(label["id"], label["name"], label["parent"]) for label in answer.json()["labels"]]
    parents = [None if parent < 0 else TREE.ids[parent] for parent in TREE.parents]
    assert rows == list(zip(TREE.ids, TREE.names, parents, strict=True))
    tag = answer.headers["ETag"]
    for known in (tag, f'"other", {tag}', f"W/{tag}"):
        again = client.get("/taxonomy", headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag)
    assert client.get("/taxonomy", headers={"If-None-Match": '"other"'}).status_code == 200


def test_the_page_and_its_files_are_served(client: httpx.Client) -> None:
    answer = client.get("/")
    assert answer.content == (FILES / "index.html").read_bytes()
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    kinds = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
    for file in FILES.iterdir():
        answer = client.get(f"/page/{file.name}")
        assert answer.content == file.read_bytes()
        assert answer.headers["Content-Type"].startswith(kinds[file.suffix])
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("path", ["/page/../app.py", "/page/%2e%2e/app.py", "/page/..%2fapp.py", "/page//etc/passwd"])
def test_no_other_file_is_served(client: httpx.Client, path: str) -> None:
    with httpx.Client() as raw:
        request = raw.build_request("GET", client.base_url)
        request.extensions["target"] = path.encode()
        answer = raw.send(request)
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found")


def test_the_description_is_a_page_that_loads_nothing_and_escapes_everything(client: httpx.Client) -> None:
    answer = client.get("/docs")
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", answer.text)
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        for method in methods:
            assert f"{method.upper()} {path}" in answer.text
    bad = "<script>alert(1)</script>"
    schema = {"description": bad, "properties": {bad: {"type": bad, "description": bad}}}
    page = api_page(
        {
            "info": {"title": bad, "version": bad, "description": bad},
            "paths": {bad: {"get": {"summary": bad, "responses": {"200": {"description": bad}}}}},
            "components": {"schemas": {bad: schema}},
        }
    )
    assert bad not in page


@pytest.fixture(scope="module")
def model(untrained: Callable[..., Path]) -> Path:
    return untrained(max_length=32)


@pytest.fixture(scope="module")
def onnx_model(model: Path) -> Path:
    pytest.importorskip("onnxscript", reason="needs the extra export")
    from hgclr.export.onnx import export_onnx

    export_onnx(model, model.parent / "onnx")
    return model.parent / "onnx"


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["torch", "onnx"])
def test_a_real_model_predicts_as_without_the_service(runtime: str, request: pytest.FixtureRequest) -> None:
    classifier = HierarchicalClassifier.load(request.getfixturevalue("model" if runtime == "torch" else "onnx_model"))
    texts = ["atom", "", "the lens of a prism in a lake is a mirror", "judge " * 40, "a boat"] * 4
    alone = [classifier.predict_proba(text) for text in texts]
    with served(create_app(classifier, Settings(batch_tokens=200), name=runtime)) as client:
        assert client.get("/model").json()["backend"] == runtime
        answer = client.post("/predict", json={"texts": texts, "probabilities": True}).json()
        explained = client.post("/explain", json={"text": "the lens of a prism", "labels": ["optics"]})
    found = [list(prediction["probabilities"].values()) for prediction in answer["predictions"]]
    np.testing.assert_allclose(found, alone, atol=6e-5)
    assert explained.status_code == 200
    assert explained.json()["method"] == ("integrated" if runtime == "torch" else "occlusion")


@pytest.mark.slow
def test_an_onnx_model_is_served_without_torch(onnx_model: Path) -> None:
    program = f"""
import sys
for name in ("torch", "transformers", "datasets", "pyarrow", "sklearn"):
    sys.modules[name] = None  # an import of it fails
import asyncio, json
import httpx
from hgclr.inference import HierarchicalClassifier
from hgclr.serving.app import create_app

async def main():
    app = create_app(HierarchicalClassifier.load({str(onnx_model)!r}))
    async with app.router.lifespan_context(app):
        app.state.service.engine.warm.wait(60)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
            answers = [
                await client.post("/predict", json={{"text": "the lens"}}),
                await client.post("/explain", json={{"text": "the lens", "labels": ["optics"]}}),
            ]
    print(json.dumps([answer.status_code for answer in answers]))

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [200, 200]
