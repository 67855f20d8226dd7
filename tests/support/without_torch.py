"""The command line where the training stack is not installed."""

from __future__ import annotations

import os
import subprocess
import sys

# Whatever asks for these modules is told that they do not exist.
CODE = """
import importlib.util, sys
HIDDEN = ("torch", "transformers", "datasets", "accelerate", "onnx", "onnxscript", "yaml", "pyarrow")
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(name, name=name)
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in HIDDEN else real(name, package)
sys.meta_path.insert(0, Hide())
from hgclr.cli.app import app
app(prog_name="hgclr")
"""


def without_torch(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command there."""
    command = [sys.executable, "-c", CODE, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"COLUMNS": "200"})
