"""Code that comes with a model or an encoder is never run, whatever the files say and whoever answers "y"."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest

from hgclr.errors import InputError
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.loading import load_model
from hgclr.models import FlatForSequenceClassification
from hgclr.models.base import load_tokenizer, save
from hgclr.models.hgclr import load_training_model
from hgclr.models.pretrained import load_encoder_config
from support.toy import make_model

CODE = """from pathlib import Path
from transformers import BertConfig, BertModel, BertForSequenceClassification, PreTrainedTokenizerFast
Path({trace!r}).write_text("run")
class Own(BertConfig): model_type = "own"
class OwnModel(BertModel): config_class = Own
class OwnTokenizer(PreTrainedTokenizerFast): pass
"""


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is there once the code was run; whatever is asked on standard input is answered by "y"."""
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 20))
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    return tmp_path / "trace"


def spoil(folder: Path, file: str, trace: Path, *, inside: str | None = None, **changes: object) -> Path:
    """Put code into a folder, and the wish to run it into one of its JSON files."""
    (folder / "own.py").write_text(CODE.format(trace=str(trace)))
    path = folder / file
    fields = json.loads(path.read_text()) if path.exists() else {}
    (fields if inside is None else fields[inside]).update(
        auto_map={
            "AutoConfig": "own.Own",
            "AutoModel": "own.OwnModel",
            "AutoModelForSequenceClassification": "own.OwnModel",
            "AutoTokenizer": ["own.OwnTokenizer", "own.OwnTokenizer"],
        },
        **changes,
    )
    path.write_text(json.dumps(fields))
    return path


@pytest.fixture
def encoder(make_encoder, tmp_path: Path) -> Path:
    return shutil.copytree(make_encoder("bert"), tmp_path / "encoder")


@pytest.mark.parametrize("escaped", [False, True])
@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("config.json", {"model_type": "own"}),
        ("tokenizer_config.json", {"tokenizer_class": "OwnTokenizer"}),
        ("processor_config.json", {}),
    ],
)
def test_an_encoder_with_code_is_refused_by_whoever_reads_it(
    encoder: Path, trace: Path, taxonomy, tokenizer, file: str, changes: dict[str, str], escaped: bool
) -> None:
    path = spoil(encoder, file, trace, **changes)
    if escaped:
        path.write_text(path.read_text().replace('"auto_map"', r'"\u0061uto\u005fmap"'))
    for read in (
        load_encoder_config,
        load_tokenizer,
        lambda name: FlatForSequenceClassification.from_encoder(name, taxonomy, tokenizer),
    ):
        with pytest.raises(InputError, match="'auto_map'") as refused:
            read(str(encoder))
        assert refused.value.path == path
    assert not trace.exists()


@pytest.mark.parametrize(
    ("file", "inside"),
    [("config.json", None), ("config.json", "encoder_config"), ("tokenizer_config.json", None), ("other.json", None)],
)
def test_a_model_with_code_is_refused_by_whoever_reads_it(
    make_encoder, taxonomy, tmp_path: Path, trace: Path, file: str, inside: str | None
) -> None:
    folder = tmp_path / "model"
    save(*make_model(make_encoder, taxonomy), folder)
    path = spoil(folder, file, trace, inside=inside, model_type="own" if inside else "hgclr")
    for read in (load_model, HierarchicalClassifier.load, load_training_model):
        with pytest.raises(InputError, match="'auto_map'") as refused:
            read(folder)
        assert refused.value.path == path
    assert not trace.exists()


def test_a_word_of_the_vocabulary_is_no_code(encoder: Path) -> None:
    path = encoder / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"]["auto_map"] = len(content["model"]["vocab"])
    path.write_text(json.dumps(content))
    assert "auto_map" in load_tokenizer(str(encoder)).get_vocab()


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "a\\b", ".."])
def test_an_index_of_weights_stays_in_its_folder(encoder: Path, name: str, taxonomy, tokenizer) -> None:
    (encoder / "model.safetensors").rename(encoder.parent / "model.safetensors")
    index = encoder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": {"embeddings.word_embeddings.weight": name}}))
    with pytest.raises(InputError, match="weight_map"):
        FlatForSequenceClassification.from_encoder(str(encoder), taxonomy, tokenizer)
