"""Damaged and made-up files of each kind, round by round with other seeds, until there were enough or time is up.

    python benchmarks/file_soak.py --cases 10000 --output benchmarks/results/file-soak.json

A round is the tests of ``tests/robustness`` on mutated files and on any content, a hundred cases of each kind, with a
seed of its own. The file is written after each round: started again, the soak goes on behind the last seed in it. It
exits with 1 if a kind of file did not survive.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rich.markup import escape

from measuring import arguments_of, provenance, show, write

ROOT = Path(__file__).parents[1]
TESTS = ("tests/robustness/test_mutated_files.py", "tests/robustness/test_any_content.py")


def one_round(seed: int, cases: int, only: str) -> tuple[Counter[str], dict[str, str]]:
    """Try so many cases of each kind; return how many each has survived, and what went wrong with the others."""
    environment = os.environ | {"HGCLR_FUZZ_CASES": str(cases), "HGCLR_FUZZ_SEED": str(seed)}
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", only, f"--junitxml={report}"]
        subprocess.run([*command, f"--basetemp={scratch}/tests", *TESTS], cwd=ROOT, env=environment, check=False)
        tests = list(ElementTree.parse(report).iter("testcase"))
    survived: Counter[str] = Counter()
    failed = {}
    for test in tests:
        problem = next((test.find(tag) for tag in ("failure", "error") if test.find(tag) is not None), None)
        if problem is not None:
            failed[str(test.get("name"))] = (problem.text or "")[-3000:]
        elif test.find("skipped") is None:
            survived[str(test.get("name"))] += cases
    return survived, failed


def main() -> None:
    """Go from round to round, write the result after each and print the table."""
    parser = arguments_of(__doc__)
    parser.add_argument("--cases", type=int, default=10000, help="of each kind, all rounds together")
    parser.add_argument("--round", type=int, default=100, help="cases of each kind in a round")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no round after this")
    parser.add_argument("--only", default="", help="kinds to try, as pytest's -k has it")
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write, and to go on from")
    arguments = parser.parse_args()
    before: dict[str, Any] = json.loads(arguments.output.read_text()) if arguments.output.exists() else {}
    survived, seeds = Counter(before.get("survived", {})), list(before.get("seeds", []))
    failed: list[dict[str, Any]] = list(before.get("failed", []))
    started = time.monotonic()
    while len(seeds) * arguments.round < arguments.cases and time.monotonic() - started < arguments.seconds:
        seed = max(seeds, default=0) + 1
        more, problems = one_round(seed, arguments.round, arguments.only)
        survived += more
        seeds.append(seed)
        failed += [{"seed": seed, "kind": kind, "problem": problem} for kind, problem in problems.items()]
        result = {"survived": dict(sorted(survived.items())), "failed": failed, "seeds": seeds}
        write({**result, "cases_a_round": arguments.round, **provenance()}, arguments.output)
    show(
        "Files survived", ("kind", "cases"), [(escape(kind), f"{count:,}") for kind, count in sorted(survived.items())]
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
