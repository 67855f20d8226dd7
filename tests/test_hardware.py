from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hgclr import hardware
from hgclr.errors import InputError, MissingExtraError
from hgclr.hardware import Probe, bf16_probe, choose_precision, machine

torch = pytest.importorskip("torch", reason="precision is torch's business")

CAPABLE = "model name\t: Test CPU\nphysical id\t: 0\ncore id\t: 0\nflags\t: fpu avx512f avx512_bf16\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a CPU that claims to know bfloat16."""
    monkeypatch.setenv("HGCLR_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(hardware, "_cpuinfo", lambda: CAPABLE)
    for name in ("_commit", "_version"):  # which tests of other files ask only once
        monkeypatch.setattr(hardware, name, getattr(hardware, name).__wrapped__)
    return tmp_path / "cache" / "hardware.json"


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Let a shell script stand for the trial's process; return the file in which it notes its runs."""
    if os.name != "posix":
        pytest.skip("the stand-in for Python is a shell script")

    def install(script: str) -> Path:
        python, runs = tmp_path / "python", tmp_path / "runs"
        python.write_text(f"#!/bin/sh\necho run >> {runs}\n{script}\n")
        python.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(python))
        return runs

    return install


def times(fp32: float, bf16: float) -> str:
    return f"echo some library talks; echo '{json.dumps({'fp32': fp32, 'bf16': bf16})}'"


# the probe


@pytest.mark.slow
def test_the_real_trial_runs_or_crashes_but_is_no_broken_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once in the place of twenty times, which take long where bfloat16 is emulated."""
    before, after = hardware._PROBE.split("range(20)")
    monkeypatch.setattr(hardware, "_PROBE", f"{before}range(1){after}")
    probe = hardware._run_probe()
    assert probe.status in {"fast", "slow", "crashes"}, probe.detail


@pytest.mark.parametrize(
    ("fp32", "bf16", "expected"),
    [
        (0.3, 0.2, Probe("fast", "1.50 times the speed of fp32", 1.5)),
        (0.24, 0.2, Probe("slow", "1.20 times the speed of fp32", 1.2)),
        (0.1, 0.4, Probe("slow", "0.25 times the speed of fp32", 0.25)),
    ],
)
def test_speed_decides(trial: Callable[[str], Path], fp32: float, bf16: float, expected: Probe) -> None:
    trial(times(fp32, bf16))
    assert bf16_probe() == expected


@pytest.mark.parametrize("script", ["kill -ILL $$", "exit 132"])
def test_a_killed_trial_is_a_crash_and_not_ours(trial: Callable[[str], Path], script: str) -> None:
    trial(script)
    probe = bf16_probe()
    assert (probe.status, probe.ratio) == ("crashes", None)
    assert probe.detail == "the trial was killed by SIGILL; ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 may avoid it"


def test_another_signal_gets_no_advice_about_instructions(trial: Callable[[str], Path]) -> None:
    trial("kill -SEGV $$")
    assert bf16_probe() == Probe("crashes", "the trial was killed by SIGSEGV")


def test_a_failed_trial_is_unsupported_and_tried_again(trial: Callable[[str], Path], cache: Path) -> None:
    runs = trial("echo Traceback >&2; echo 'RuntimeError: no bfloat16' >&2; exit 1")
    assert bf16_probe() == bf16_probe() == Probe("unsupported", "RuntimeError: no bfloat16")
    assert runs.read_text().count("run") == 2
    assert not cache.exists()


def test_a_trial_without_end_is_unsupported(trial: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "PATIENCE", 0.2)
    trial("exec sleep 60")
    assert bf16_probe() == Probe("unsupported", "the trial did not end within 0.2 s")


def test_no_trial_without_the_instructions(trial: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    runs = trial(times(3, 1))
    monkeypatch.setattr(hardware, "_cpuinfo", lambda: "flags : fpu avx2 avx512f\n")
    probe = bf16_probe()
    assert (probe.status, probe.ratio) == ("slow", None)
    assert "no bfloat16 instructions" in probe.detail
    assert not runs.exists()


@pytest.mark.parametrize("cpuinfo", ["", "Features : fp asimd bf16\n", "flags : fpu amx_bf16\n"])
def test_a_trial_where_the_system_does_not_say_or_says_yes(
    trial: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, cpuinfo: str
) -> None:
    trial(times(3, 1))
    monkeypatch.setattr(hardware, "_cpuinfo", lambda: cpuinfo)
    assert bf16_probe().status == "fast"


def test_the_answer_is_cached_until_its_file_is_deleted(trial: Callable[[str], Path], cache: Path) -> None:
    runs = trial(times(3, 1))
    assert bf16_probe() == bf16_probe()
    assert runs.read_text().count("run") == 1
    trial(times(1, 1))
    assert bf16_probe().ratio == 3
    cache.unlink()
    assert bf16_probe() == bf16_probe() == Probe("slow", "1.00 times the speed of fp32", 1.0)
    assert runs.read_text().count("run") == 2


def test_the_cache_tells_cpus_torch_versions_and_instruction_limits_apart(
    trial: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    runs = trial(times(3, 1))
    version = importlib.metadata.version
    bf16_probe()
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
    bf16_probe()
    monkeypatch.setattr(hardware, "_cpuinfo", lambda: CAPABLE.replace("Test", "Other"))
    bf16_probe()
    monkeypatch.setattr(hardware, "_cpuinfo", lambda: CAPABLE.replace("avx512_bf16", "amx_bf16 avx512_bf16"))
    bf16_probe()
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "99" if name == "torch" else version(name))
    bf16_probe()
    assert runs.read_text().count("run") == len(json.loads(cache.read_text())["bf16"]) == 5


@pytest.mark.parametrize("content", ["", "[]", '{"bf16": 3}', '{"bf16": {"x": {"colour": 1}}}', "\x00"])
def test_a_broken_cache_is_replaced(trial: Callable[[str], Path], cache: Path, content: str) -> None:
    trial(times(3, 1))
    cache.parent.mkdir()
    cache.write_text(content)
    assert bf16_probe().status == "fast"
    assert len(json.loads(cache.read_text())["bf16"]) == 1


def test_a_cache_that_cannot_be_written_costs_only_a_warning(
    trial: Callable[[str], Path], cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trial(times(3, 1))
    cache.parent.write_text("a file where the folder should be")
    assert bf16_probe().status == "fast"
    assert f"cannot keep the answer in {cache}" in caplog.text


def test_no_trial_without_torch(trial: Callable[[str], Path], without_torch: None) -> None:
    runs = trial(times(3, 1))
    assert bf16_probe() == Probe("unsupported", "torch is not installed")
    assert not runs.exists()


# the choice


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else find_spec(name, *rest)
    )


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Choose what torch says the machine has and what the probe says of its CPU."""

    def choose(kind: str, *, native: bool = False, status: str = "fast") -> None:
        def supported(*, including_emulation: bool = True) -> bool:
            return native or including_emulation

        monkeypatch.setattr(torch.cuda, "is_available", lambda: kind == "cuda")
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: kind != "cpu")
        monkeypatch.setattr(hardware, "bf16_probe", lambda: Probe(status, f"the probe says {status}"))

    return choose


@pytest.mark.parametrize(
    ("kind", "native", "status", "expected"),
    [
        ("cuda", True, "crashes", "bf16"),
        ("cuda", False, "fast", "fp32"),
        ("mps", False, "fast", "fp32"),
        ("cpu", False, "fast", "bf16"),
        ("cpu", False, "slow", "fp32"),
        ("cpu", False, "crashes", "fp32"),
        ("cpu", False, "unsupported", "fp32"),
    ],
)
def test_auto(device: Callable[..., None], kind: str, native: bool, status: str, expected: str) -> None:
    device(kind, native=native, status=status)
    assert choose_precision("auto") == expected


@pytest.mark.parametrize("status", ["crashes", "unsupported"])
def test_bf16_that_does_not_run_is_refused(device: Callable[..., None], status: str) -> None:
    device("cpu", status=status)
    with pytest.raises(InputError) as error:
        choose_precision("bf16")
    assert error.value.what == f"precision bf16 does not run here: the probe says {status}"
    assert error.value.remedy == "use precision auto or fp32"


def test_slow_bf16_is_granted_with_a_warning(device: Callable[..., None], caplog: pytest.LogCaptureFixture) -> None:
    device("cpu", status="slow")
    assert choose_precision("bf16") == "bf16"
    assert "bf16 gains nothing here (the probe says slow)" in caplog.text


def test_fp16_needs_a_gpu(device: Callable[..., None]) -> None:
    device("cuda")
    assert choose_precision("fp16") == "fp16"
    device("cpu")
    with pytest.raises(InputError, match="precision fp16 needs a GPU and there is none; use precision auto"):
        choose_precision("fp16")


def test_bf16_on_a_gpu_without_it_is_refused(device: Callable[..., None]) -> None:
    device("cuda", native=True)
    assert choose_precision("bf16") == "bf16"
    device("cuda", native=False)
    with pytest.raises(InputError, match="this GPU has no bfloat16; use precision fp16 or auto"):
        choose_precision("bf16")


def test_other_accelerators_get_what_was_asked_for(device: Callable[..., None]) -> None:
    device("mps")
    assert [choose_precision("bf16"), choose_precision("fp16")] == ["bf16", "fp16"]


def test_without_torch_only_fp32_can_be_chosen(without_torch: None) -> None:
    assert choose_precision("fp32") == "fp32"
    with pytest.raises(MissingExtraError, match=r"precision auto needs .* pip install 'hgclr\[train\]'"):
        choose_precision("auto")


# the machine


def test_machine_reads_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = [(0, 0), (0, 1), (0, 0), (0, 1), (1, 0)]  # two sockets, three cores, five threads
    block = "model name : Fine CPU : v2\nphysical id : {}\ncore id : {}\n\n"
    monkeypatch.setattr(hardware, "_cpuinfo", lambda: "".join(block.format(*thread) for thread in threads))
    found = machine()
    assert found["processor"] == "Fine CPU : v2"
    assert found["cores"] == 3


def test_machine_is_plain_json_with_versions_of_missing_packages_as_null(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hardware, "MAIN_PACKAGES", ("numpy", "no-such-package"))
    found = machine()
    assert json.loads(json.dumps(found)) == found
    assert found["packages"] == {
        "hgclr": importlib.metadata.version("hgclr"),
        "numpy": importlib.metadata.version("numpy"),
        "no-such-package": None,
    }
    assert found["python"] == ".".join(str(part) for part in sys.version_info[:3])


def test_machine_without_cpuinfo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "_cpuinfo", lambda: "")
    found = machine()
    assert found["processor"]
    assert found["cores"] is None


def test_importing_and_describing_the_machine_needs_no_torch() -> None:
    code = "import sys, hgclr.hardware as h; h.machine(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# the commit


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_commit_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "src" / "hgclr"
    package.mkdir(parents=True)
    (package / "hardware.py").write_text("")
    monkeypatch.setattr(hardware, "__file__", str(package / "hardware.py"))

    def found() -> tuple[object, object]:
        known = machine()
        return known["commit"], known["modified"]

    assert found() == (None, None), "no repository"
    results = tmp_path / "benchmarks" / "results" / "table.md"
    results.parent.mkdir(parents=True)
    results.write_text("")
    git(tmp_path, "init", "--quiet")
    assert found() == (None, None), "no commit"
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    commit = git(tmp_path, "log", "-1", "--format=%H")
    (tmp_path / "untracked").write_text("")
    results.write_text("one more row")
    assert found() == (commit, False)
    (package / "hardware.py").write_text("changed")
    assert found() == (commit, True)
    monkeypatch.setenv("PATH", "")
    assert found() == (None, None), "no git"


def test_an_installed_copy_inside_another_repository_has_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "lib" / "hgclr"
    package.mkdir(parents=True)
    (package / "hardware.py").write_text("")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "somebody else's")
    monkeypatch.setattr(hardware, "__file__", str(package / "hardware.py"))
    assert machine()["commit"] is None
