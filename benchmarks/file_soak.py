"""Test the readers with damaged and generated files of each kind, in rounds with different seeds.

    python benchmarks/file_soak.py --cases 10000 --output benchmarks/results/file-soak.json

A round runs the tests of ``tests/robustness`` on mutated files and on arbitrary content, 100 cases of each kind, with
its own seed. The output file is written after each round; a second start continues after its last seed. The exit code
is 1 if a case failed.
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
    """Run ``cases`` cases of each kind; return the number that passed by kind, and the failures."""
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
    """Run the rounds, write the result after each, and print the table."""
    parser = arguments_of(__doc__)
    parser.add_argument("--cases", type=int, default=10000, help="cases of each kind over all rounds")
    parser.add_argument("--round", type=int, default=100, help="cases of each kind per round")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no new round after this time")
    parser.add_argument("--only", default="", help="kinds to run, as an expression of pytest -k")
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write; an existing one is continued")
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
    show("Passed", ("kind", "cases"), [(escape(kind), f"{count:,}") for kind, count in sorted(survived.items())])
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
