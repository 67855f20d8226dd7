"""The run's settings: a YAML file with ``data``, ``model`` and ``training``, checked before work begins."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, ValidationError, model_validator
from pydantic_core import ErrorDetails

from hgclr.config import PRESETS, method_fields, method_settings
from hgclr.errors import InputError, as_written, first_line, refuse_broken, url_of
from hgclr.files import read_bytes, write_files
from hgclr.registry import is_pretrained, merged
from hgclr.remote import local

LINEAR_HEADS = ("flat", "hgclr")
"""Architectures whose head is one linear layer on the text's vector."""
Place = Annotated[Path, PlainSerializer(as_written, when_used="json-unless-none")]
"""A path, or a URL in an object store."""


def _known_architecture(name: str) -> str:
    known = ["flat", "hgclr", *merged("architectures")]
    if name not in known:
        raise ValueError(f"unknown architecture {name!r}: choose one of {', '.join(known)}")
    return name


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_default=True)


class DataSettings(_Section):
    """Where the documents are and how they are read."""

    path: Place = Field(description="the data folder, or its URL in an object store")
    taxonomy: Place | None = Field(None, description="the file of the label tree, if it is not in the folder")
    text_column: str | None = Field(
        None, description="the column with the text; by default as the folder remembers, or `text`"
    )
    label_column: str | None = Field(
        None, description="the column with the labels; by default as the folder remembers, or `labels`"
    )
    label_separator: str | None = Field(
        None,
        description="separates labels where they are one string, as in CSV; by default as the folder remembers, or `;`",
    )
    path_separator: str | None = Field(
        None,
        description="separates the names of a label given as a path; by default as the folder remembers, or `>` with a"
        " space on either side",
    )
    add_ancestors: bool | None = Field(
        None,
        description="add the ancestors of every label, where rows name only the deepest; by default as the folder"
        " remembers, or not",
    )
    skip_bad_rows: bool = Field(
        False, description="leave out rows that cannot be used, with a record, instead of stopping at the first"
    )
    limit: int | None = Field(None, ge=1, description="train on a random sample of this many documents")
    dev_limit: int | None = Field(None, ge=1, description="select on a random sample of this many dev documents")
    test_limit: int | None = Field(None, ge=1, description="score a random sample of this many test documents")
    dev_share: float | None = Field(None, gt=0, lt=1, description="hold out this share of train where there is no dev")
    unlabelled: Literal["none"] | Place | None = Field(
        None,
        description="texts without labels to learn from as well: a file, folder or URL; by default the file"
        " `unlabelled.*` of the data folder, if there is one; `none` ignores it",
    )
    label_documents: bool | None = Field(
        None,
        description="train on the names and descriptions of labels as well, each labelled with its path; by default not"
        " in the presets `paper` and `published`",
    )


class LoraSettings(_Section):
    """Low-rank adapters (LoRA), which are trained instead of the encoder's weights."""

    rank: int = Field(16, ge=1, description="rank of the matrix added to a layer's weights")
    alpha: int = Field(32, ge=1, description="the added matrix is multiplied by `alpha / rank`")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout of the adapters' input")
    targets: Literal["auto"] | list[str] = Field(
        "auto",
        description="the layers to adapt: `auto` is all linear layers of the encoder's attention; a list names linear"
        " layers, by whole names or their last parts",
    )

    @model_validator(mode="after")
    def _has_targets(self) -> Self:
        if not self.targets:
            raise ValueError("model.lora.targets is empty: name linear layers, or give auto")
        return self


class ModelSettings(_Section):
    """The encoder, the architecture, and any setting of :class:`~hgclr.models.HGCLRConfig` on top of a preset."""

    model_config = ConfigDict(extra="allow")

    encoder: str = Field(
        "all-MiniLM-L6-v2",
        description="a name from `hgclr encoders list`, a folder or its URL, a name on the hub, or one that an"
        " extension builds, such as `textrcnn`",
    )
    architecture: Annotated[str, AfterValidator(_known_architecture)] = Field(
        "flat",
        description="the system to train: `flat`, an encoder with a linear head, `hgclr`, or one of an extension; every"
        " preset but `default` sets `hgclr`, and a model to start from sets its own",
    )
    preset: Literal["default", "hgclr", "paper", "published"] = Field(
        "default",
        description="the model settings to start from: `default`; `hgclr`, the same for HGCLR; `paper`, HGCLR as the"
        " paper describes it; `published`, as its authors' program computes it",
    )
    lora: LoraSettings | None = Field(
        None,
        description="train low-rank adapters instead of the encoder's weights, and merge them at the end: less memory,"
        " the same kind of model. `{}` takes the defaults of its settings; it needs the extra `lora`",
    )
    start: Place | None = Field(None, description="continue training from this training-model")
    label_changes: Place | None = Field(
        None,
        description="a file that maps labels of the model to start from to labels of the data, where ids do not show"
        " it: see `hgclr taxonomy diff --changes`",
    )

    @model_validator(mode="before")
    @classmethod
    def _preset_decides(cls, given: Any) -> Any:
        """Every preset but the default trains HGCLR; those of the paper take other architectures, too."""
        if not isinstance(given, dict) or given.get("preset", "default") == "default":
            return given
        given = {"architecture": "hgclr", **given}
        if given["preset"] == "hgclr" != given["architecture"]:
            raise ValueError(f"model.preset is hgclr and model.architecture is {given['architecture']}: leave one out")
        return given

    @model_validator(mode="after")
    def _start_decides(self) -> Self:
        """Encoder and preset come with the model that training starts from."""
        if self.label_changes is not None and self.start is None:
            raise ValueError("model.label_changes is given without model.start (--from), whose labels have changed")
        for name in ("encoder", "preset"):
            if self.start is not None and name in self.model_fields_set:
                raise ValueError(f"model.start and model.{name} are both given, but the {name} comes with the model")
        return self

    @property
    def follows_paper(self) -> bool:
        """Whether label documents, tuned decisions and what else is ours are left out, as in the paper."""
        return self.preset in ("paper", "published")

    @property
    def overrides(self) -> dict[str, Any]:
        """The model settings that are set on top of the preset, or of the model to start from."""
        return dict(self.__pydantic_extra__ or {})


class TrainingSettings(_Section):
    """How to optimise; the recipe fills in the rest, see :func:`~hgclr.training.recipe.make_recipe`."""

    effort: Literal["names", "head", "full"] = Field(
        "full",
        description="`names` uses the label tree alone, without labelled documents; `head` fits the head to vectors of"
        " the encoder as it is, in a fraction of the time; `full` trains encoder and head",
    )
    calibrate: bool | None = Field(
        None,
        description="tune decisions on dev at the end and save them with the model; by default not in the presets"
        " `paper` and `published`, and never with the effort `names`",
    )
    refit_head: bool | None = Field(
        None,
        description="after `full` training, fit the head again to the trained encoder's vectors of all documents, and"
        " keep the better one on dev; by default from 10,000 documents, not in the presets `paper` and `published`",
    )
    recipe: Literal["default", "paper"] = Field(
        "default", description="the source of the optimisation settings that are left out"
    )
    epochs: int | None = Field(None, ge=1, description="passes over the documents, at most")
    batch_size: int | None = Field(
        None,
        ge=2,
        description="documents of a batch, over all processes; for the contrastive loss the others are a document's"
        " negatives. By default 16, and up to 64 of many short texts",
    )
    batching: Literal["by_length", "uniform"] | None = Field(
        None,
        description="`by_length` puts texts of similar length into a batch, `uniform` draws them; by default the first,"
        " in the presets `paper` and `published` the second",
    )
    gradient_accumulation: int = Field(1, ge=1, description="batches whose gradients are summed before a step")
    gradient_checkpointing: bool = Field(
        False,
        description="keep only the inputs of the encoder's layers for the backward pass and compute the rest again:"
        " less memory, more time, the same gradients",
    )
    learning_rate: float | None = Field(None, gt=0, description="learning rate of the encoder")
    head_learning_rate: float | None = Field(
        None, gt=0, description="learning rate of the layers on top of the encoder"
    )
    warmup: float | None = Field(
        None, ge=0, description="steps over which the rates rise: below 1 a share of all steps, from 1 a number of them"
    )
    schedule: Literal["linear", "constant"] | None = Field(
        None, description="after warm-up the rates fall to 0 (`linear`) or stay (`constant`)"
    )
    weight_decay: float | None = Field(None, ge=0, description="weight decay of AdamW; biases and norms have none")
    max_gradient_norm: float | None = Field(None, ge=0, description="norm to which gradients are cut; 0 turns it off")
    base_rate_bias: bool | None = Field(
        None, description="start the head's bias at the log odds of the labels in train"
    )
    patience: int = Field(6, ge=1, description="epochs without a better dev score before training stops")
    patience_metrics: list[Literal["macro_f1", "micro_f1"]] = Field(
        ["macro_f1"], min_length=1, description="dev scores of which one must rise within `patience` epochs"
    )
    seed: int = Field(0, ge=0, description="decides everything that is random")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto",
        description="number format of the computation; `auto` is bf16 on an accelerator that supports it and fp32 on a"
        " CPU. In the presets `paper` and `published` it is fp32 unless it is set",
    )
    tensorboard: bool = Field(False, description="write loss terms and scores for TensorBoard")


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
        """Only a linear head on a pretrained encoder can be trained with less effort; LoRA needs full training."""
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
        return not self.model.follows_paper if chosen is None else chosen

    @property
    def tunes_decisions(self) -> bool:
        """Whether decisions are tuned on dev at the end."""
        chosen = self.training.calibrate
        return (not self.model.follows_paper if chosen is None else chosen) and self.training.effort != "names"

    @property
    def refits_head(self) -> bool | None:
        """Whether the head is fitted once more at the end; None leaves it to the number of documents."""
        chosen = self.training.refit_head
        if self.model.architecture not in LINEAR_HEADS or self.training.effort != "full":
            return False
        return False if chosen is None and self.model.follows_paper else chosen

    @property
    def resolved_training(self) -> TrainingSettings:
        """The settings of training with what the preset decides filled in."""
        training, ours = self.training, not self.model.follows_paper
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
        problems = _method_problems(tree.get("model"))
        try:
            run = cls.model_validate(tree)
        except ValidationError as error:
            problems = [*map(_problem, error.errors()), *problems]
        if problems:
            raise InputError("; ".join(problems), path=path)
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
        tree[name] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"--set {override!r}: the value is no valid YAML") from error
    if isinstance(tree[name], str):
        with suppress(ValueError):  # YAML 1.1 takes 3e-5 for a word
            tree[name] = float(text)


def _method_problems(section: Any) -> list[str]:
    """Return the mistakes in the method settings of the section ``model``, as a YAML file has it."""
    given: dict[str, Any] = section if isinstance(section, dict) else {}
    if (preset := given.get("preset", "default")) not in list(PRESETS):  # a list, because YAML may give a dict
        return []
    overrides = {str(name): value for name, value in given.items() if name not in ModelSettings.model_fields}
    try:
        method_settings(preset, overrides)
    except InputError as error:
        whole = error
    else:
        return []
    right, problems = dict[str, Any](), list[str]()
    for name in sorted(overrides, key=lambda name: overrides[name] is None):  # None needs what replaces it
        try:
            method_settings(preset, right | {name: overrides[name]})
            right[name] = overrides[name]
        except InputError as error:
            problems.append(str(error))
    return problems or [str(whole)]


def _problem(problem: ErrorDetails) -> str:
    """Say in one line what pydantic found, with the nearest known name for an unknown setting."""
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


COMMON = (
    *("data.path", "data.taxonomy", "data.text_column", "data.label_column", "data.limit", "data.dev_share"),
    *("model.encoder", "model.architecture", "model.preset", "model.lora", "model.start", "model.max_length"),
    *("model.pooling", "training.effort", "training.calibrate", "training.epochs", "training.batch_size"),
    *("training.learning_rate", "training.patience", "training.seed", "training.precision"),
)
"""The settings that people change; ``hgclr settings --all`` lists the others as well."""


@dataclass(frozen=True)
class Setting:
    """A setting of a run, for ``hgclr settings`` and the reference.

    Args:
        section: ``data``, ``model``, ``training``, or ``method``, whose settings are part of ``model``.
        name: as ``--set`` takes it, with its section.
        kind: the values it takes, in words.
        default: its value if it is not set; None also where the recipe or the preset decides.
        presets: the presets that set it to another value.
    """

    section: str
    name: str
    kind: str
    default: Any
    meaning: str
    required: bool = False
    presets: dict[str, Any] = field(default_factory=dict)


def list_settings() -> list[Setting]:
    """Return all settings, section by section."""
    listed = [*_section("data", DataSettings), *_section("model", ModelSettings)]
    for name, known in method_fields().items():
        default = PRESETS["default"].get(name, known.default)
        presets = {preset: values[name] for preset, values in PRESETS.items() if values.get(name, default) != default}
        meaning = _sentence(known.metadata["meaning"])
        listed.append(Setting("method", f"model.{name}", _kind(known.type), default, meaning, presets=presets))
    return [*listed, *_section("training", TrainingSettings)]


def _section(section: str, model: type[BaseModel], inside: str = "") -> Iterator[Setting]:
    signs = {"ge": "≥", "gt": ">", "lt": "<", "min_length": "at least"}
    for name, info in model.model_fields.items():
        limits = [(sign, getattr(each, limit, None)) for each in info.metadata for limit, sign in signs.items()]
        kind = " ".join([_kind(info.annotation), *(f"{sign} {value}" for sign, value in limits if value is not None)])
        default = None if info.is_required() else info.default
        meaning = _sentence(info.description or "")
        yield Setting(section, f"{section}.{inside}{name}", kind, default, meaning, info.is_required())
        for part in get_args(info.annotation):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from _section(section, part, f"{inside}{name}.")


def _sentence(text: str) -> str:
    return (text[0].upper() if text[0].isascii() else text[0]) + text[1:] + "."  # γ stays small


def _kind(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " | ".join(map(str, parts))
    if origin in (Union, UnionType):
        return " or ".join(_kind(part) for part in parts if part is not NoneType)
    if origin is not None:
        return f"list of {_kind(parts[0])}" if origin is list else _kind(parts[0])
    if issubclass(annotation, BaseModel):
        return "section"
    return {Path: "path", str: "text", int: "whole number", float: "number", bool: "true | false"}[annotation]


def written(value: Any) -> str:
    """Return a value as YAML writes it, on one line."""
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("\n...\n").strip()
