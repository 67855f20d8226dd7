"""A real network in torch and in onnxruntime behind the service: batches change nothing, and torch is not needed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hgclr.inference import HierarchicalClassifier
from hgclr.serving.app import create_app
from hgclr.serving.settings import Settings
from support.fake_service import served

TEXTS = ["atom", "", "the lens of a prism in a lake is a mirror", "judge " * 40, "a boat", "goal of the match"] * 4


@pytest.fixture(scope="module")
def model(untrained: Callable[..., Path]) -> Path:
    return untrained(max_length=32)


@pytest.fixture(scope="module")
def onnx_model(model: Path) -> Path:
    pytest.importorskip("onnxscript", reason="writing ONNX is an optional part: pip install 'hgclr[export]'")
    from hgclr.export.onnx import export_onnx

    export_onnx(model, model.parent / "onnx")
    return model.parent / "onnx"


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["torch", "onnx"])
def test_a_text_among_others_has_the_probabilities_it_has_alone(runtime: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue("model" if runtime == "torch" else "onnx_model")
    classifier = HierarchicalClassifier.load(folder)
    alone = np.concatenate([classifier.predict_proba([text]) for text in TEXTS])
    with served(create_app(classifier, Settings(batch_tokens=200), name=runtime)) as client:
        assert client.get("/model").json()["backend"] == runtime
        answer = client.post("/predict", json={"texts": TEXTS, "probabilities": True}).json()
        explained = client.post("/explain", json={"text": "the lens of a prism", "labels": ["optics"]})
    found = [list(prediction["probabilities"].values()) for prediction in answer["predictions"]]
    np.testing.assert_allclose(found, alone, atol=1e-5)
    assert explained.status_code == 200
    assert explained.json()["method"] == ("integrated" if runtime == "torch" else "occlusion")
    assert [label["id"] for label in explained.json()["labels"]] == ["optics"]


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
