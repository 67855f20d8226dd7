"""Programs in processes of their own without the seconds that importing torch takes: forks of one that has imported it.

For tests of what a process has not imported or set up; nothing of ours is in these, unless a program imports it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

SERVER = """
import importlib, json, os, sys, traceback
for name in sys.argv[1:]:
    importlib.import_module(name)
for line in sys.stdin:
    program, arguments, stdout, stderr = json.loads(line)
    process = os.fork()
    if process == 0:
        code = 1
        try:
            for stream, path in ((1, stdout), (2, stderr)):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
            sys.argv = ["-c", *arguments]
            exec(program, {"__name__": "__main__"})
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""


class Done(NamedTuple):
    """What a program has printed, and how it ended."""

    returncode: int
    stdout: str
    stderr: str


class FreshProcesses:
    """Runs programs one after the other, as ``python -c`` would."""

    def __init__(self, orders: IO[str], answers: IO[str]) -> None:
        self._orders, self._answers = orders, answers

    def run(self, program: str, *arguments: object) -> Done:
        with tempfile.TemporaryDirectory() as folder:
            streams = [str(Path(folder) / name) for name in ("stdout", "stderr")]
            self._orders.write(json.dumps([program, [str(word) for word in arguments], *streams]) + "\n")
            self._orders.flush()
            code = int(self._answers.readline())
            return Done(code, *(Path(stream).read_text(encoding="utf-8") for stream in streams))


@contextmanager
def fresh_processes(*modules: str) -> Iterator[FreshProcesses]:
    """Give processes that have imported ``modules`` and whatever those import."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, *modules],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield FreshProcesses(server.stdin, server.stdout)
