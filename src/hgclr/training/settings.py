"""The run's settings: a YAML file with ``data``, ``model`` and ``training``, each value checked before work begins."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, ValidationError, model_validator

from hgclr.config import method_settings
from hgclr.errors import InputError, first_line, refuse_broken
from hgclr.files import read_bytes, write_files
from hgclr.registry import is_pretrained, merged
from hgclr.remote import local
from hgclr.urls import as_written, url_of

__all__ = [
    "DataSettings",
    "LoraSettings",
    "ModelSettings",
    "Recipe",
    "RunConfig",
    "TrainingSettings",
    "make_recipe",
    "read_yaml",
]


LINEAR_HEADS = ("flat", "hgclr")
"""Architectures whose head is one linear layer on the text's vector."""
Place = Annotated[Path, PlainSerializer(as_written, when_used="json-unless-none")]
"""A path, or a URL in an object store."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_default=True)


class DataSettings(_Section):
    """Where the documents are and how they are read; see :class:`~hgclr.data.folder.DataFolder`.

    Args:
        path: the data folder, or its URL in an object store.
        taxonomy: the file of the label tree, if it is not in the folder.
        text_column: the column with the text; by default what the folder remembers, or ``text``.
        label_column: the column with the labels; by default what the folder remembers, or ``labels``.
        label_separator: what stands between labels where they are one string, as in CSV; by default what the folder
            remembers, or ``;``.
        path_separator: what stands between the names of a label given as a path; by default what the folder remembers,
            or ``>`` with a space on either side.
        add_ancestors: add the ancestors of every label, where rows name only the deepest; by default what the folder
            remembers, or not.
        skip_bad_rows: drop rows that cannot be used, count and record them, instead of stopping at the first.
    """

    path: Place
    taxonomy: Place | None = None
    text_column: str | None = None
    label_column: str | None = None
    label_separator: str | None = None
    path_separator: str | None = None
    add_ancestors: bool | None = None
    skip_bad_rows: bool = False
    limit: int | None = Field(None, ge=1, description="train on a random sample of this many documents")
    dev_limit: int | None = Field(None, ge=1, description="select on a random sample of this many dev documents")
    test_limit: int | None = Field(None, ge=1, description="score a random sample of this many test documents")
    dev_share: float | None = Field(None, gt=0, lt=1, description="hold out this share of train where there is no dev")
    label_documents: bool | None = Field(
        None,
        description="train on each label's name and description as well, labelled with its path; by default in the"
        " preset default and in no other",
    )


class LoraSettings(_Section):
    """Adapters of low rank (LoRA), which are trained in the place of the encoder's weights.

    Args:
        rank: rank of what is added to a layer's weights.
        alpha: what is added is multiplied by ``alpha / rank``.
        dropout: dropout of what the adapters read.
        targets: the layers that are adapted: ``auto`` is all linear layers of the encoder's attention, a list names
            linear layers, by whole names or their last parts.
    """

    rank: int = Field(16, ge=1)
    alpha: int = Field(32, ge=1)
    dropout: float = Field(0.0, ge=0, lt=1)
    targets: Literal["auto"] | list[str] = "auto"

    @model_validator(mode="after")
    def _has_targets(self) -> Self:
        """Without a layer there is nothing to train."""
        if not self.targets:
            raise ValueError("model.lora.targets is empty: name linear layers, or give auto")
        return self


def _known_architecture(name: str) -> str:
    known = ["flat", "hgclr", *merged("architectures")]
    if name not in known:
        raise ValueError(f"unknown architecture {name!r}: choose one of {', '.join(known)}")
    return name


class ModelSettings(_Section):
    """The encoder, the architecture, and any choice of :class:`~hgclr.models.HGCLRConfig` on top of a preset.

    Args:
        encoder: a name from ``hgclr encoders list``, a folder or its URL, a name on the hub, or one that an extension
            builds, such as ``textrcnn``.
        architecture: the system to train; by default ``flat``, an encoder with a linear head, and in the presets
            ``paper`` and ``published``, which are readings of it, ``hgclr``. A model to start from decides by itself.
        preset: the reading of the method that the choices below start from.
        lora: train adapters of low rank in the place of the encoder's weights, and merge them at the end: less memory,
            and the same kind of model. ``{}`` takes the defaults of the settings in it; it needs the extra ``lora``.
    """

    model_config = ConfigDict(extra="allow")

    encoder: str = "all-MiniLM-L6-v2"
    architecture: Annotated[str, AfterValidator(_known_architecture)] = "flat"
    preset: Literal["default", "paper", "published"] = "default"
    lora: LoraSettings | None = None
    start: Place | None = Field(None, description="train on from this training-model instead of a new one")
    label_changes: Place | None = Field(
        None, description="what became of its labels, where ids do not show it: see hgclr taxonomy diff --changes"
    )

    @model_validator(mode="before")
    @classmethod
    def _preset_decides(cls, given: Any) -> Any:
        """The paper's presets are readings of HGCLR."""
        if isinstance(given, dict) and given.get("preset") in ("paper", "published"):
            return {"architecture": "hgclr", **given}
        return given

    @model_validator(mode="after")
    def _start_decides(self) -> Self:
        """Encoder and preset come with the model that training starts from; labels of a new one have no past."""
        if self.label_changes is not None and self.start is None:
            raise ValueError("model.label_changes is given without model.start (--from), whose labels have changed")
        for name in ("encoder", "preset"):
            if self.start is not None and name in self.model_fields_set:
                raise ValueError(f"model.start and model.{name} are both given, but the {name} comes with the model")
        return self

    @property
    def overrides(self) -> dict[str, Any]:
        """Return the choices of the method that are set on top of the preset, or of the model to start from."""
        return dict(self.__pydantic_extra__ or {})


class TrainingSettings(_Section):
    """How to optimise; what is left out comes from the recipe, see :func:`make_recipe`.

    Args:
        effort: ``names`` learns from the label tree alone, without one labelled document; ``head`` fits the head on
            vectors of the encoder as it comes, in a fraction of the time; ``full`` trains all of it.
        calibrate: tune decisions on dev at the end and save them with the model; by default in the preset ``default``
            and in no other, and never after the effort ``names``.
        refit_head: at the end of ``full`` training, fit a linear head once more, to the trained encoder's vectors of
            all documents, and keep the better one on dev; by default of 10,000 documents or more, and in the preset
            ``default`` only.
        recipe: where settings that have no default and are left out come from.
        epochs: how often to go through the documents at most.
        batch_size: documents of a batch, those of all processes together; to the contrastive loss, the others in it are
            a document's negatives. By default 16, and up to 64 of many short texts.
        batching: ``by_length`` puts texts of similar length into a batch, ``uniform`` draws them; by default the first,
            and in the presets ``paper`` and ``published``, whose negatives are drawn, the second.
        gradient_accumulation: batches whose gradients are summed up before a step.
        gradient_checkpointing: keep only the inputs of the encoder's layers for the backward pass, and compute the rest
            anew there: less memory, more time, the same gradients.
        learning_rate: learning rate of the encoder.
        head_learning_rate: learning rate of the layers on top of the encoder.
        schedule: after warm-up the rates fall to 0 (``linear``) or stay (``constant``).
        weight_decay: weight decay of AdamW; biases and norms have none.
        base_rate_bias: start the head's bias at the log odds of the labels in train.
        patience_metrics: the dev scores of which one must rise within ``patience`` epochs.
        seed: decides everything that is random.
        precision: what to compute in; ``auto`` is bf16 where a trial shows that this machine runs it faster. In the
            presets ``paper`` and ``published`` it is fp32 unless it is set.
        tensorboard: write the loss terms and scores for TensorBoard.
    """

    effort: Literal["names", "head", "full"] = "full"
    calibrate: bool | None = None
    refit_head: bool | None = None
    recipe: Literal["default", "paper"] = "default"
    epochs: int | None = Field(None, ge=1)
    batch_size: int | None = Field(None, ge=2)
    batching: Literal["by_length", "uniform"] | None = None
    gradient_accumulation: int = Field(1, ge=1)
    gradient_checkpointing: bool = False
    learning_rate: float | None = Field(None, gt=0)
    head_learning_rate: float | None = Field(None, gt=0)
    warmup: float | None = Field(
        None, ge=0, description="steps over which the rates rise: below 1 a share of all steps, from 1 a number of them"
    )
    schedule: Literal["linear", "constant"] | None = None
    weight_decay: float | None = Field(None, ge=0)
    max_gradient_norm: float | None = Field(
        None, ge=0, description="length to which gradients are cut; 0 turns that off"
    )
    base_rate_bias: bool | None = None
    patience: int = Field(6, ge=1, description="epochs without a better dev score before training stops")
    patience_metrics: list[Literal["macro_f1", "micro_f1"]] = Field(["macro_f1"], min_length=1)
    seed: int = Field(0, ge=0)
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    tensorboard: bool = False


class RunConfig(_Section):
    """A whole run.

    Example:
        >>> run = RunConfig(data={"path": "my-data"}, output="runs/first")
        >>> run.model.encoder
        'all-MiniLM-L6-v2'
    """

    data: DataSettings
    model: ModelSettings = ModelSettings()
    training: TrainingSettings = TrainingSettings()
    output: Path

    @model_validator(mode="after")
    def _effort_fits(self) -> Self:
        """Only a linear head on a pretrained encoder can be had for less than full training, which is not adapted."""
        effort = self.training.effort
        if self.training.refit_head and self.model.architecture not in LINEAR_HEADS:
            raise ValueError(f"training.refit_head is true, and {self.model.architecture} has more than a linear head")
        if self.model.lora is not None and (effort != "full" or not is_pretrained(self.model.encoder)):
            reason = f"training.effort is {effort}" if effort != "full" else f"model.encoder is {self.model.encoder}"
            raise ValueError(f"model.lora adapts a pretrained encoder in training, and {reason}: leave it out")
        if effort == "full":
            return self
        if self.model.architecture not in LINEAR_HEADS or not is_pretrained(self.model.encoder):
            system = self.model.architecture if is_pretrained(self.model.encoder) else self.model.encoder
            raise ValueError(f"training.effort is {effort}, and {system} has more to train than a head: use full")
        if effort == "names" and self.model.start is not None:
            raise ValueError("training.effort is names, which takes nothing from model.start (--from)")
        return self

    @property
    def uses_label_documents(self) -> bool:
        chosen = self.data.label_documents
        return self.model.preset == "default" if chosen is None else chosen

    @property
    def tunes_decisions(self) -> bool:
        """Whether decisions are tuned on dev at the end."""
        chosen = self.training.calibrate
        return (self.model.preset == "default" if chosen is None else chosen) and self.training.effort != "names"

    @property
    def refits_head(self) -> bool | None:
        """Whether the head is fitted once more at the end; None leaves it to the number of documents."""
        chosen = self.training.refit_head
        if self.model.architecture not in LINEAR_HEADS or self.training.effort != "full":
            return False
        return False if chosen is None and self.model.preset != "default" else chosen

    @property
    def resolved_training(self) -> TrainingSettings:
        """The settings of training with what the preset decides filled in."""
        training, ours = self.training, self.model.preset == "default"
        chosen = training.precision if ours or "precision" in training.model_fields_set else "fp32"
        batching = training.batching or ("by_length" if ours else "uniform")
        return training.model_copy(
            update={
                "calibrate": self.tunes_decisions,
                "refit_head": self.refits_head,
                "batching": batching,
                "precision": chosen,
            }
        )

    @classmethod
    def read(cls, path: str | Path, overrides: list[str] | None = None, output: str | Path | None = None) -> RunConfig:
        """Read a YAML file, or take a data folder, and put ``key=value`` overrides such as ``training.seed=3`` on top.

        Raises:
            InputError: if the file cannot be read, a setting is unknown, or a value does not fit.
        """
        path = Path(path)
        url = url_of(path)
        if path.is_dir() or (url is not None and path.suffix not in (".yaml", ".yml")):
            tree = {"data": {"path": str(path)}, "output": str(output or Path("runs") / path.resolve().name)}
            return cls.build(tree, overrides or [])
        tree = read_yaml(local(path))
        if not isinstance(tree, dict):
            raise InputError("expected the sections data, model, training", path=path)
        if output is not None:
            tree["output"] = str(output)
        tree.setdefault("output", str(Path("runs") / path.stem))
        return cls.build(tree, overrides or [], path)

    @classmethod
    def build(cls, tree: dict[str, Any], overrides: Sequence[str] = (), path: Path | None = None) -> RunConfig:
        """Make a run of sections as a YAML file has them, with ``key=value`` overrides on top.

        Raises:
            InputError: if a setting is unknown, or a value does not fit; with ``path``, where there is one.
        """
        for override in overrides:
            _override(tree, override)
        try:
            run = cls.model_validate(tree)
            method_settings(run.model.preset, run.model.overrides)
        except ValidationError as error:
            raise InputError(_first_problem(error), path=path) from None
        except InputError as error:
            raise InputError(error.what, path=path, remedy=error.remedy) from None
        return run

    def write(self, path: str | Path) -> None:
        """Write the settings as YAML, readable by :meth:`read`, whole or not at all."""
        # What comes with the model to start from may not be given beside it.
        inherited = {"model": {"encoder", "preset"}} if self.model.start is not None else None
        tree = self.model_dump(mode="json", exclude_none=True, exclude=inherited)
        path = Path(path)
        write_files(path.parent, {path.name: yaml.safe_dump(tree, sort_keys=False, allow_unicode=True).encode()})


def read_yaml(path: Path) -> Any:
    """Read a YAML file."""
    try:
        text = read_bytes(path).decode()
    except FileNotFoundError:
        raise InputError("no such file or folder", path=path) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from error
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8: {error.reason}", path=path, remedy="save the file as UTF-8") from error

    def refusal(error: BaseException) -> InputError:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or first_line(error)
        return InputError(f"no valid YAML: {problem}", path=path, line=None if mark is None else mark.line + 1)

    with refuse_broken(refusal):  # a date that no calendar has is a ValueError, deep nesting a RecursionError
        return yaml.safe_load(text)


def _override(tree: dict[str, Any], override: str) -> None:
    """Set one ``section.key=value`` in ``tree``, the value read as YAML."""
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set {override!r} is no key=value", remedy="write for example --set training.seed=3")
    *sections, name = key.strip().split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
        if not isinstance(tree, dict):
            raise InputError(f"--set {override!r}: {section!r} is no section")
    try:
        tree[name] = _number(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise InputError(f"--set {override!r}: the value is no valid YAML") from error


def _number(value: Any) -> Any:
    """Read 3e-5 as a number; YAML 1.1 takes it for a word."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _first_problem(error: ValidationError) -> str:
    """Say in one line what pydantic found first, with the nearest known name for an unknown setting."""
    problem = error.errors()[0]
    place = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"])
    if problem["type"] != "extra_forbidden":
        return f"{place}: {problem['msg'][0].lower() + problem['msg'][1:]} (got {problem['input']!r})"
    sections: dict[tuple[Any, ...], type[BaseModel]] = {
        (): RunConfig,
        ("data",): DataSettings,
        ("model", "lora"): LoraSettings,
        ("training",): TrainingSettings,
    }
    known = list(sections[problem["loc"][:-1]].model_fields)
    near = difflib.get_close_matches(str(problem["loc"][-1]), known, n=1)
    return f"{place}: unknown setting; " + (f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}")


@dataclass(frozen=True)
class Recipe:
    """Every optimisation choice, decided."""

    epochs: int
    steps_per_epoch: int
    batch_size: int
    learning_rate: float
    head_learning_rate: float
    warmup: float
    schedule: str
    weight_decay: float
    max_gradient_norm: float
    base_rate_bias: bool


SMALL_RATE = 3e-4
"""Rate of a MiniLM-L6, which larger encoders stay below."""
SMALL_BATCH = 16
"""Documents of a batch, unless there are many short ones."""
MANY_DOCUMENTS = 10_000
"""From how many documents on batches of short ones are larger, of fewer they would be few steps; and from how many on
the head is fitted once more: an encoder sees fewer so often that it knows them by heart."""
LARGEST_BATCH = 64
"""Documents of a batch of many short ones, at most."""
FULL_STEP = 1024
"""Tokens of a batch beyond which a larger one saves nothing: on a sixth of them a third of a step is fixed costs."""
LORA_RATE = 10.0
"""How many times the rate of a whole encoder its adapters take."""
STEPS, STEPS_FROM_NAMES = 750, 300
"""Steps that a head needs which starts from random weights, and one that starts from the labels' names."""


def make_recipe(
    settings: TrainingSettings,
    *,
    documents: int,
    encoder_parameters: int,
    mean_length: float = math.inf,
    pretrained: bool = True,
    head_rate: float = 10.0,
    from_names: bool = False,
    lora: bool = False,
) -> Recipe:
    """Fill what ``settings`` leave open.

    Args:
        settings: the user's choices.
        documents: size of the training set.
        encoder_parameters: size of the encoder without its embeddings.
        mean_length: tokens of a document, on average.
        pretrained: the encoder knows the language already; one that does not needs higher rates and more epochs.
        head_rate: how many times the encoder's rate the layers on top of it take. If it is more than once, and the rate
            is not set, they take it of a small encoder's, :data:`SMALL_RATE`: they start anew on one of any size.
        from_names: the head starts from the labels' names, and is soon where it belongs.
        lora: adapters are trained in the place of the encoder, at :data:`LORA_RATE` times its rate.
    """
    paper = settings.recipe == "paper"
    if pretrained:
        batch_size, rate = (12, 3e-5) if paper else (SMALL_BATCH, default_rate(encoder_parameters))
    else:  # the paper's is the recipe of the baselines that it trains without a pretrained encoder
        batch_size, rate, head_rate = (64, 1e-4, 1.0) if paper else (SMALL_BATCH, 1e-3, 1.0)
    times = LORA_RATE if lora else 1.0
    new_rate = SMALL_RATE if pretrained and head_rate > 1 else rate  # what head_rate multiplies
    if pretrained and not paper and settings.batch_size is None and settings.gradient_accumulation == 1:
        batch_size = default_batch(documents, mean_length)
        rise = math.sqrt(batch_size / SMALL_BATCH)  # larger batches are less noisy, and bear larger steps
        rate, new_rate = rise * rate, rise * new_rate
    if settings.learning_rate is not None:
        new_rate = settings.learning_rate / times
    batch_size, rate = settings.batch_size or batch_size, settings.learning_rate or times * rate
    steps = math.ceil(documents / (batch_size * settings.gradient_accumulation))
    epochs = default_epochs(steps, STEPS_FROM_NAMES if from_names and pretrained else STEPS)

    def choose(given: Any, of_paper: Any, otherwise: Any) -> Any:
        return given if given is not None else of_paper if paper else otherwise

    return Recipe(
        epochs=choose(settings.epochs, 100 if pretrained else 200, epochs * (1 if pretrained else 5)),
        steps_per_epoch=steps,
        batch_size=batch_size,
        learning_rate=rate,
        head_learning_rate=choose(settings.head_learning_rate, rate / times, head_rate * new_rate),
        warmup=choose(settings.warmup, 2000.0 if pretrained else 0.0, 0.1),
        schedule=choose(settings.schedule, "constant", "linear"),
        weight_decay=choose(settings.weight_decay, 0.0, 0.01),
        max_gradient_norm=choose(settings.max_gradient_norm, 0.0, 1.0),
        base_rate_bias=choose(settings.base_rate_bias, False, True),
    )


def default_rate(encoder_parameters: int) -> float:
    """Return the encoder's rate: 3e-4 for a MiniLM-L6 (11 M without word embeddings), 4e-5 for a base model (85 M)."""
    return min(SMALL_RATE, max(1e-5, SMALL_RATE * 11e6 / max(encoder_parameters, 1)))


def default_batch(documents: int, mean_length: float) -> int:
    """Return the documents of a batch: 16, or up to 64 of many short texts, as long as they fill a step no more."""
    batch_size = SMALL_BATCH
    while documents >= MANY_DOCUMENTS and batch_size < LARGEST_BATCH and 2 * batch_size * mean_length <= FULL_STEP:
        batch_size *= 2
    return batch_size


def default_epochs(steps: int, wanted: int) -> int:
    """Return the number of epochs for an epoch of ``steps``: about as many in all as are wanted, but 5 to 30 epochs."""
    return min(30, max(5, round(wanted / steps)))
