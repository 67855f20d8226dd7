"""A sitting from the first text to the last, with a tiny encoder; and the simulated one."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from hgclr.data.folder import DataFolder
from hgclr.errors import InputError
from hgclr.labelling import sitting as module
from hgclr.labelling.learning import RETRAIN
from hgclr.labelling.simulate import SimulatedRow, answers_needed, simulate
from hgclr.labelling.sitting import Sitting, Task
from hgclr.labelling.store import Answer
from hgclr.taxonomy import Taxonomy

WORDS = {"physics": "atom laser quantum", "law": "court judge contract", "tennis": "racket serve net"}


def label_of(text: str) -> str:
    return next(label for label, words in WORDS.items() if text.split()[0] in words)


def write_texts(folder: Path, count: int = 90) -> Path:
    generator, path = np.random.default_rng(0), folder / "texts.csv"
    names = [sorted(WORDS)[number % 3] for number in range(count)]
    rows = [" ".join(generator.choice(WORDS[name].split(), 6)) + f" {place}" for place, name in enumerate(names)]
    path.write_text("text\n" + "\n".join(rows) + "\n")
    return path


@pytest.fixture
def begin(make_encoder, taxonomy: Taxonomy, tmp_path: Path):
    taxonomy.write(tmp_path / "tree.json")
    opened: list[Sitting] = []

    def begin(name: str = "labels", **options) -> Sitting:
        if not (tmp_path / name).exists():
            texts = options.pop("texts", None) or write_texts(tmp_path)
            options = {"texts": [texts], "taxonomy": tmp_path / "tree.json", "encoder": make_encoder("bert")} | options
        opened.append(Sitting.open(tmp_path / name, **options))
        return opened[-1]

    yield begin
    for each in opened:
        each.close()


def reply(sitting: Sitting, task: Task | None, user: str = "anna", *labels: str) -> int:
    assert task is not None
    chosen = labels or (label_of(task.text),)
    return sitting.answer(Answer(task.document, user, "labels", chosen, model=task.model))


def test_a_sitting_from_the_first_text_to_the_last(begin) -> None:
    sitting = begin()
    first = sitting.next("anna")
    assert first is not None
    assert len(first.suggestions) == 5
    assert first.model is None
    assert sitting.next("anna") == first  # the same until it is answered
    assert json.loads(json.dumps(first.to_json()))["suggestions"][0]["path"][0] in ("science", "society")
    hidden, seen = [], set()
    for number in range(90):
        task = sitting.next("anna")
        assert task is not None
        assert task.document not in seen
        seen.add(task.document)
        hidden.append(task.hidden)
        assert task.hidden == (not task.suggestions)
        if task.suggestions:
            shown = [suggestion.probability for suggestion in task.suggestions]
            assert shown == sorted(shown, reverse=True)
            assert all(word in task.text for suggestion in task.suggestions for word in suggestion.words)
        reply(sitting, task)
        if number % 30 == 29:
            sitting.retrain(wait=True)
    assert sitting.next("anna") is None
    assert sum(hidden[:60]) == 9
    progress = sitting.progress("anna")
    assert (progress.answers, progress.skipped, progress.documents) == (90, 0, 90)
    assert progress.people == {"anna": 90}
    covered = {"science", "physics", "society", "law", "sports", "tennis"}
    assert set(progress.labels_without_text) == set(sitting.taxonomy.ids) - covered
    assert progress.labels_covered == 6
    assert progress.curve[-1][0] == 90
    for _, score, low, high in progress.curve:
        assert 0 <= low <= score <= high <= 1
    assert progress.agreement is not None
    json.dumps(progress.to_json())


def test_models_are_trained_in_the_background_and_swapped(begin, monkeypatch: pytest.MonkeyPatch) -> None:
    sitting = begin()
    before = sitting.model
    for _ in range(RETRAIN):
        reply(sitting, sitting.next("anna"))
    until = time.monotonic() + 60
    while sitting.model is before and time.monotonic() < until:
        assert sitting.next("anna") is not None  # meanwhile the former model suggests
        time.sleep(0.01)
    assert sitting.model.answers == RETRAIN
    sitting._thread.join()
    reply(sitting, sitting.next("anna"))
    assert sitting.model.answers == RETRAIN
    monkeypatch.setattr(module, "IDLE", 0.0)
    sitting.next("anna")
    sitting._thread.join()
    assert sitting.model.answers == RETRAIN + 1
    assert [model.answers for model in sitting.store.models()] == [RETRAIN, RETRAIN + 1]


def test_a_training_that_fails_leaves_the_former_model(begin, monkeypatch: pytest.MonkeyPatch) -> None:
    sitting = begin()
    reply(sitting, sitting.next("anna"))
    before = sitting.model

    def fail(*_args, **_options):
        raise InputError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(module, "learn", fail)
        sitting.retrain()
        sitting._thread.join()
        assert sitting.model is before
        assert "no memory" in sitting.progress().advice
        with pytest.raises(InputError):
            sitting.retrain(wait=True)
    sitting.retrain(wait=True)
    assert "no memory" not in sitting.progress().advice


def test_undo_gives_the_text_back_for_any_number_of_steps(begin) -> None:
    sitting = begin()
    given = []
    for _ in range(4):
        task = sitting.next("anna")
        assert task is not None
        given.append(task.document)
        reply(sitting, task)
    for document in reversed(given):
        task = sitting.undo("anna")
        assert task is not None
        assert task.document == document
        assert sitting.next("anna") == task
    assert sitting.undo("anna") is None
    assert sitting.progress().answers == 0


def test_a_sitting_is_opened_again_with_the_same_model_and_by_one_process_only(begin) -> None:
    sitting = begin()
    for _ in range(5):
        reply(sitting, sitting.next("anna"))
    sitting.retrain(wait=True)
    leased, model = sitting.next("anna"), sitting.model
    with pytest.raises(InputError):
        begin()
    sitting.close()
    again = begin()
    assert again.model.id == model.id
    np.testing.assert_array_equal(again.model.head.weight, model.head.weight)
    assert len(again.store.models()) == 1
    assert again.next("anna") == leased


def test_two_users_get_the_same_text_only_from_the_sample_labelled_twice(begin) -> None:
    sitting = begin()
    double = {each.id for each in sitting.store.documents() if each.double}
    got: dict[str, list[int]] = {"anna": [], "bert": []}

    def label(user: str) -> None:
        while (task := sitting.next(user)) is not None:
            got[user].append(task.document)
            reply(sitting, task, user, "law" if user == "bert" and task.document in double else label_of(task.text))

    threads = [threading.Thread(target=label, args=(user,)) for user in got]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    both = set(got["anna"]) & set(got["bert"])
    assert both == double
    assert set(got["anna"]) | set(got["bert"]) == set(range(90))
    progress = sitting.progress()
    assert progress.people_agreement is not None
    assert progress.disagreements == sum(label_of(sitting.store.texts()[document]) != "law" for document in double)
    assert progress.disagreements > 0


def test_disagreements_are_a_queue_of_their_own(begin) -> None:
    sitting = begin()
    assert sitting.next("carl", mode="disagreements") is None
    for document in (3, 5):
        for user, label in (("anna", "law"), ("bert", "tennis")):
            sitting.answer(Answer(document, user, "labels", (label,)))
    given = []
    while (task := sitting.next("carl", mode="disagreements")) is not None:
        assert sorted(answer.user for answer in task.others) == ["anna", "bert"]
        given.append(task.document)
        reply(sitting, task, "carl", "law" if task.document == 3 else "rowing")
    assert given == [3, 5]
    assert list(sitting.store.disagreements()) == [5]  # three answers, no majority
    task = sitting.undo("carl")
    assert task is not None
    assert task.document == 5
    again = sitting.next("carl", mode="disagreements")
    assert again is not None
    assert again.document == 5


def test_the_yes_or_no_mode_asks_only_where_the_model_is_sure(begin, monkeypatch: pytest.MonkeyPatch) -> None:
    sitting = begin()
    task = sitting.next("anna", yes_no=True)
    assert task is not None
    for sure in (task.suggestions[0].probability - 0.01, task.suggestions[0].probability + 0.01):
        monkeypatch.setattr(module, "SURE", sure)
        again = sitting.next("anna", yes_no=True)
        assert again is not None
        assert again.question == (task.suggestions[0] if task.suggestions[0].probability > sure else None)
    assert sitting.next("anna").question is None


def test_a_data_folder_is_learned_from_and_reviewed_last(begin, taxonomy: Taxonomy, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    taxonomy.write(data / "taxonomy.json")
    rows = [{"text": f"court judge {n}", "labels": ["society", "law"]} for n in range(12)]
    (data / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    sitting = begin(data=data, texts=write_texts(tmp_path, 6))
    assert sitting.model.answers == 12
    assert sitting.progress().answers == 0
    given = []
    for _ in range(18):
        task = sitting.next("anna")
        assert task is not None
        given.append(task.document)
        reply(sitting, task)
    assert set(given[:6]) == set(range(6))
    assert set(given[6:]) == set(range(6, 18))
    with pytest.raises(InputError):
        sitting.answer(Answer(0, "data", "labels", ("law",)))


@pytest.mark.slow
def test_a_full_training_replaces_the_encoder_and_is_used_after_a_restart(begin) -> None:
    sitting = begin()
    for _ in range(60):
        reply(sitting, sitting.next("anna"))
    sitting.retrain("full", wait=True)
    assert sitting.store.models()[-1].effort == "full"
    name = sitting.model.encoder.name
    assert name.startswith("model-")
    task = sitting.next("anna")
    sitting.close()
    again = begin()
    assert again.model.encoder.name == name
    assert again.next("anna") == task


@pytest.mark.parametrize("strategy", ["tree", "random"])
def test_a_simulated_sitting_scores_after_every_training(
    strategy, make_encoder, taxonomy: Taxonomy, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    taxonomy.write(data / "taxonomy.json")
    for split, count in (("train", 80), ("test", 30)):
        texts = write_texts(tmp_path, count).read_text().splitlines()[1:]
        rows = [{"text": text, "labels": list(taxonomy.path_names(taxonomy.resolve(label_of(text))))} for text in texts]
        (data / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    stages = set()
    rows = simulate(
        DataFolder(data),
        strategies=[strategy],
        answers=50,
        seeds=2,
        encoder=make_encoder("bert"),
        cache=tmp_path,
        progress=lambda stage, *_: stages.add(stage),
    )
    assert [(row.strategy, row.answers, row.seeds) for row in rows] == [(strategy, 25, 2), (strategy, 50, 2)]
    assert rows[-1].micro_f1 > 0.4
    assert stages == {"encoding train", "encoding test", "simulating"}
    assert len(list(tmp_path.glob("*.npy"))) == 2


def test_the_answers_needed_are_interpolated() -> None:
    def row(strategy, answers: int, score: float) -> SimulatedRow:
        return SimulatedRow(strategy, answers, 5, score, 0.0, score, 0.0)

    rows = [row("random", 100, 0.5), row("random", 200, 0.6), row("tree", 100, 0.5), row("tree", 200, 0.7)]
    assert answers_needed([*rows, row("margin", 100, 0.1)], 200) == {
        "random": pytest.approx(200),
        "tree": pytest.approx(150),
        "margin": None,
    }
