"""Print the lowest version of every dependency in pyproject.toml, as pip's constraints; see `make test-lowest`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
needed = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
lowest = {}
for line in needed:
    if match := re.fullmatch(r"([\w-]+)(?:\[[\w,]+\])?>=([\w.]+)", line):
        lowest[match[1].lower()] = match[2]
for name, version in sorted(lowest.items()):
    print(f"{name}=={version}.*")
