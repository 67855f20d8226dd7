"""The store: samples, answers, undo, leases, targets, and kills at any moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from hgclr.data.folder import Document
from hgclr.errors import InputError
from hgclr.labelling import store as module
from hgclr.labelling.store import Answer, Store, majority, target_rows
from hgclr.taxonomy import Taxonomy


def write_texts(folder: Path, count: int) -> Path:
    path = folder / "texts.csv"
    path.write_text("id,text\n" + "".join(f"t{number},text number {number}\n" for number in range(count)))
    return path


@pytest.fixture
def store(tmp_path: Path, taxonomy: Taxonomy):
    opened = Store.open(tmp_path / "labels", [write_texts(tmp_path, 40)], taxonomy)
    yield opened
    opened.close()


def labels(document: int, user: str, *chosen: str, **fields) -> Answer:
    return Answer(document, user, "labels", chosen, **fields)


def test_texts_of_several_files_keep_their_order_without_repeats(tmp_path: Path, taxonomy: Taxonomy) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "One  text"}\n{"text": " "}\n{"text": "another"}\n')
    (tmp_path / "more.csv").write_text("text\none text\nthe third\n")
    store = Store.open(tmp_path / "labels", [path, tmp_path / "more.csv"], taxonomy, text_column="text")
    found = [(each.id, each.source, each.text) for each in store.documents()]
    assert found == [(0, "1", "One  text"), (1, "3", "another"), (2, "3", "the third")]
    assert sum(store.meta("left_out").values()) == 2
    assert store.texts() == ["One  text", "another", "the third"]
    with pytest.raises(InputError):
        Store.open(tmp_path / "other", [path], taxonomy, text_column="txt")


def test_the_samples_are_exact_shares_drawn_by_seed(tmp_path: Path, taxonomy: Taxonomy) -> None:
    texts = write_texts(tmp_path, 400)
    drawn = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        documents = Store.open(tmp_path / name, [texts], taxonomy, seed=seed).documents()
        drawn.append(([each.random for each in documents], [each.double for each in documents]))
        assert sum(drawn[-1][0]) == 60
        assert sum(drawn[-1][1]) == 40
        assert 0 < sum(one and other for one, other in zip(*drawn[-1], strict=True)) < 20  # independent of each other
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_store_is_opened_again_without_texts_and_refuses_others(store: Store, tmp_path: Path) -> None:
    store.add(labels(3, "anna", "physics"))
    again = Store.open(store.folder)
    assert again.taxonomy == store.taxonomy
    assert [answer.labels for answer in again.current()] == [("physics",)]
    with pytest.raises(InputError):
        Store.open(store.folder, taxonomy=Taxonomy(["law"], [-1]))
    with pytest.raises(InputError):
        Store.open(store.folder, [write_texts(tmp_path, 41)])
    assert len(Store.open(store.folder, [write_texts(tmp_path, 40)]).texts()) == 40
    with pytest.raises(InputError):
        Store.open(tmp_path / "other", taxonomy=store.taxonomy)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / module.FILE).write_bytes(b"no database" * 100)
    with pytest.raises(InputError):
        Store.open(tmp_path / "broken", taxonomy=store.taxonomy)


@pytest.mark.parametrize(
    "answer",
    [
        labels(40, "anna", "physics"),
        labels(0, " ", "physics"),
        labels(0, "anna"),
        labels(0, "anna", "unknown"),
        labels(0, "anna", "physics", refused=("science",)),
        Answer(0, "anna", "none", ("physics",)),
        Answer(0, "anna", "perhaps"),
    ],
)
def test_unusable_answers_are_refused(store: Store, answer: Answer) -> None:
    with pytest.raises(InputError):
        store.add(answer)
    assert not store.current()


def test_an_answer_comes_back_as_it_was_given_and_the_latest_counts(store: Store) -> None:
    first = labels(1, "anna", "physics", "law", refused=("tennis",), partial=True, note="ä\n", model=4, milliseconds=9)
    number = store.add(first)
    (back,) = store.current()
    assert back.id == number
    assert back.to_json() == first.to_json() | {"id": number}
    store.add(labels(1, "anna", "law"))
    store.add(labels(1, "bert", "tennis"))
    assert [(one.user, one.labels) for one in store.current()] == [("anna", ("law",)), ("bert", ("tennis",))]
    assert [one.user for one in store.current(["bert"])] == ["bert"]


def test_any_number_of_answers_is_undone_newest_first_each_user_for_themselves(store: Store) -> None:
    for document in range(5):
        store.add(labels(document, "anna", "physics"))
        store.add(labels(document, "bert", "law"))
    store.add(labels(4, "anna", "law"))
    undone = [store.undo("anna") for _ in range(7)]
    assert [one and one.document for one in undone] == [4, 4, 3, 2, 1, 0, None]
    assert [one.user for one in store.current()] == ["bert"] * 5
    store.add(labels(2, "anna", "chemistry"))
    again = store.undo("anna")
    assert again is not None
    assert again.labels == ("chemistry",)
    assert store.undo("anna") is None
    kinds = [row[0] for row in store._connection().execute("SELECT kind FROM answers")]
    assert kinds.count("undo") == 7  # nothing is deleted
    assert len(kinds) == 12 + 7


def test_undo_makes_the_former_answer_to_the_text_valid_again(store: Store) -> None:
    store.add(labels(4, "anna", "physics"))
    store.add(labels(4, "anna", "law"))
    store.undo("anna")
    assert [one.labels for one in store.current()] == [("physics",)]


def test_a_text_is_leased_to_one_user_until_the_lease_expires(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    single = next(each.id for each in store.documents() if not each.double)
    now = time.time()
    monkeypatch.setattr(module.time, "time", lambda: now)
    assert store.lease(single, "anna", 60)
    assert not store.lease(single, "bert", 60)
    assert store.lease(single, "bert", 60, shared=True)
    assert store.leased("anna") == store.leased("bert") == single
    now += 61
    assert store.leased("anna") is None
    assert store.lease(single, "bert", 60)
    store.lease(single + 1, "bert", 60)  # in place of the former one
    assert store.lease(single, "anna", 60)
    store.add(labels(single, "anna", "law"))
    assert store.leased("anna") is None
    assert not store.lease(single, "bert", 60)


def test_work_is_what_others_do_not_have(store: Store) -> None:
    double = np.array([each.double for each in store.documents()])
    one, two = np.flatnonzero(double)[:2].tolist()
    first, second, third, fourth = np.flatnonzero(~double)[:4].tolist()
    store.add(labels(one, "anna", "law"))
    store.add(labels(first, "anna", "law"))
    store.add(Answer(second, "anna", "skip"))
    store.lease(two, "anna", 60)
    work = store.work("bert", double)
    assert work.free.sum() == 39
    assert not work.free[first]
    assert np.flatnonzero(work.taken).tolist() == sorted([one, two, first, second])
    assert np.flatnonzero(work.second).tolist() == [one]
    store.lease(third, "carl", 60)
    store.add(labels(one, "carl", "law"))
    work = store.work("bert", double)
    assert np.flatnonzero(~work.free).tolist() == sorted([one, first, third])
    own = store.work("anna", double)
    assert np.flatnonzero(~own.free).tolist() == sorted([one, first, second, third])
    assert fourth in np.flatnonzero(own.free)


def test_two_users_at_once_never_get_the_same_text(tmp_path: Path, taxonomy: Taxonomy) -> None:
    store = Store.open(tmp_path / "labels", [write_texts(tmp_path, 60)], taxonomy, shares=(0, 0))
    got: dict[str, list[int]] = {"anna": [], "bert": [], "carl": []}

    def label(user: str) -> None:
        for document in range(60):
            if store.lease(document, user, 60):
                got[user].append(document)
                store.add(labels(document, user, "law"))

    threads = [threading.Thread(target=label, args=(user,)) for user in got]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    assert sorted(document for documents in got.values() for document in documents) == list(range(60))


def test_targets_of_every_kind_of_answer(taxonomy: Taxonomy) -> None:
    """By hand, on the tree of nine labels."""
    cases = [
        (Answer(0, "a", "labels", ("optics",)), {"optics": 1, "physics": 1, "science": 1}),
        (Answer(0, "a", "labels", ("physics",)), {"physics": 1, "science": 1}),
        (Answer(0, "a", "labels", ("physics",), partial=True), {"physics": 1, "science": 1, "optics": np.nan}),
        (
            Answer(0, "a", "labels", ("science",), ("physics",), partial=True),
            {"science": 1, "chemistry": np.nan},
        ),
        (Answer(0, "a", "labels", ("physics", "law")), {"physics": 1, "science": 1, "law": 1, "society": 1}),
        (Answer(0, "a", "none"), {}),
        (
            Answer(0, "a", "labels", (), ("science",), partial=True),
            dict.fromkeys(("society", "law", "sports", "tennis", "rowing"), np.nan),
        ),
    ]
    expected = [[values.get(label, 0) for label in taxonomy.ids] for _, values in cases]
    np.testing.assert_array_equal(target_rows([answer for answer, _ in cases], taxonomy), expected)
    assert target_rows([], taxonomy).shape == (0, len(taxonomy))


def test_the_majority_is_found_by_comparing_every_pair() -> None:
    generator = np.random.default_rng(0)
    for _ in range(300):
        count = int(generator.integers(1, 6))
        rows = generator.choice([0, 1, np.nan], size=(count, 3), p=[0.45, 0.35, 0.2]).astype(np.float32)

        def agree(one: np.ndarray, other: np.ndarray) -> bool:
            pairs = zip(one.tolist(), other.tolist(), strict=True)
            return all(a == b or np.isnan(a) or np.isnan(b) for a, b in pairs)

        support = [sum(agree(one, other) for other in rows) for one in rows]
        found = majority(rows)
        assert (found is None) == (max(support) * 2 <= count)
        if found is not None:
            assert any(agree(found, one) for one in rows)


def test_people_disagree_until_a_majority_agrees(store: Store) -> None:
    store.add(labels(1, "anna", "physics", partial=True))
    store.add(labels(1, "bert", "optics"))
    store.add(labels(2, "anna", "law"))
    store.add(labels(2, "bert", "tennis"))
    store.add(Answer(3, "anna", "skip"))
    assert list(store.disagreements()) == [2]
    settled = store.settled()
    assert list(settled) == [1]
    assert [store.taxonomy.ids[label] for label in np.flatnonzero(settled[1])] == ["optics", "physics", "science"]
    store.add(labels(2, "carl", "law"))
    assert not store.disagreements()
    assert store.taxonomy.ids[np.flatnonzero(store.settled()[2])[0]] == "law"


def test_labels_of_a_data_folder_count_until_a_person_answers(tmp_path: Path, taxonomy: Taxonomy) -> None:
    known = [Document("text number 1", (0,)), Document("a lens", tuple(taxonomy.closure([taxonomy.resolve("optics")])))]
    store = Store.open(tmp_path / "labels", [write_texts(tmp_path, 20)], taxonomy, labelled=known)
    assert len(store.texts()) == 21  # the other is one of the texts
    (answer,) = store.current()
    assert (answer.document, answer.user, answer.labels) == (20, "data", ("optics",))
    double = np.array([each.double for each in store.documents()])
    assert store.work("anna", double).free[20]
    store.add(labels(20, "anna", "law"))
    assert [one.user for one in store.current()] == ["anna"]
    assert not store.disagreements()


WRITER = """
import sys
from hgclr.labelling.store import Answer, Store
store = Store.open(sys.argv[1])
for document in range(int(sys.argv[2]), 100000):
    number = store.add(Answer(document % 40, "anna", "labels", ("physics",), note=str(document)))
    print(number, document, flush=True)
    if document % 7 == 0:
        print("undone", store.undo("anna").id, flush=True)
"""


def test_a_kill_at_any_moment_loses_no_acknowledged_answer(store: Store) -> None:
    generator, first = random.Random(0), 0
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    acknowledged: dict[int, str] = {}
    undone: set[int] = set()
    for _ in range(6):
        command = [sys.executable, "-c", WRITER, str(store.folder), str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
            assert child.stdout is not None
            lines = [child.stdout.readline()]
            time.sleep(generator.uniform(0, 0.15))
            os.kill(child.pid, signal.SIGKILL)
            lines += child.stdout.read().splitlines(keepends=True)
        for line in lines:
            if line.endswith("\n"):
                number, value = line.split()
                if number == "undone":
                    undone.add(int(value))
                else:
                    acknowledged[int(number)], first = value, int(value) + 1
    again = Store.open(store.folder)
    rows = {
        number: (note, undone_by)
        for number, note, undone_by in again._connection().execute(
            "SELECT id, note, undone_by FROM answers WHERE kind != 'undo'"
        )
    }
    assert len(acknowledged) > 6
    for number, note in acknowledged.items():
        assert rows[number][0] == note
    assert all(rows[number][1] is not None for number in undone)
    assert again._connection().execute("PRAGMA integrity_check").fetchone() == ("ok",)
    again.close()


def test_a_kill_while_the_store_is_made_leaves_it_complete_or_absent(tmp_path: Path, taxonomy: Taxonomy) -> None:
    texts, tree = write_texts(tmp_path, 20_000), tmp_path / "tree.json"
    taxonomy.write(tree)
    program = (
        "import sys; from hgclr.labelling.store import Store; print(flush=True);"
        "Store.open(sys.argv[1], sys.argv[2:3], sys.argv[3]); print('made', flush=True)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    for place, wait in enumerate(np.linspace(0, 0.4, 5)):
        folder = tmp_path / f"labels{place}"
        command = [sys.executable, "-c", program, str(folder), str(texts), str(tree)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(wait)
            os.kill(child.pid, signal.SIGKILL)
        store = Store.open(folder, [texts], tree)
        assert len(store.texts()) == 20_000
        store.close()
