"""Compare the lines of each package with its budget in pyproject.toml, [tool.hgclr.budgets]."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARGIN = 1.05


def lines(files: list[Path]) -> int:
    """Return the lines of Python files, blank ones and docstrings included."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def main() -> int:
    """Print a line for each package and return 1 if one is over its budget."""
    budgets = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hgclr"]["budgets"]
    package = ROOT / "src" / "hgclr"
    found = {"modules": sorted(package.glob("*.py"))}
    found |= {folder.name: sorted(folder.rglob("*.py")) for folder in sorted(package.iterdir()) if folder.is_dir()}
    found = {name: files for name, files in found.items() if files}
    found["core"] = [path for name, files in found.items() if name != "paper" for path in files]
    found["tests"] = sorted((ROOT / "tests").rglob("*.py"))
    over = []
    for name, files in found.items():
        budget, count = budgets.get(name, 0), lines(files)
        print(f"{name:<14}{count:>7,} of {budget:>6,} lines, {len(files):>3} files")
        if count > budget * MARGIN:
            over.append(name)
    files = len(found["core"]) + len(found["paper"])
    if files > budgets["files"]:
        over.append(f"files ({files} of {budgets['files']})")
    if over:
        print(f"over budget: {', '.join(over)}; CONTRIBUTING.md says how to ask for more", file=sys.stderr)
    return bool(over)


if __name__ == "__main__":
    sys.exit(main())
