"""A build for one machine: the processor's own level alone, a word where that is not enough, and levels added later.

``make demo`` builds so (``CRFIELD_LEVELS=machine``), and ``make setup`` adds the other levels to the same build
folder. Here one module is built in this way without optimisation, beside a copy of the Python sources.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

nanobind = pytest.importorskip("nanobind", reason="the build tools are in the extra 'dev'")

ROOT = Path(__file__).parents[2]
CAN_COMPILE = shutil.which("cmake") and (shutil.which("c++") or shutil.which("g++") or shutil.which("clang++"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not (ROOT / "CMakeLists.txt").exists(), reason="needs the sources of the project"),
    pytest.mark.skipif(not CAN_COMPILE, reason="no compiler or no CMake here"),
    pytest.mark.skipif(
        not sys.platform.startswith("linux") or not sysconfig.get_platform().endswith("x86_64"),
        reason="other systems and processors have one set of objects",
    ),
]

ASK = """
import warnings
from crfield.errors import SpeedWarning
from crfield.kernels import choice
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always", SpeedWarning)
    print(choice.chosen(), choice.level(), *[one.message for one in told])
"""


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        list(map(str, command)), env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def build(folder: Path, levels: str) -> str:
    """What the build tool says of `_chain` with these levels, which then lies in ``crfield/kernels``."""
    quick = ("-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0", f"-DCRFIELD_LEVELS={levels}")
    python = f"-DPython_EXECUTABLE={sys.executable}"
    run("cmake", "-S", ROOT, "-B", folder / "build", python, f"-Dnanobind_DIR={nanobind.cmake_dir()}", *quick)
    told = run("cmake", "--build", folder / "build", "--target", "_chain", "--parallel", "2")
    (made,) = (folder / "build").glob("_chain.*")
    shutil.copy(made, folder / "crfield" / "kernels")
    return told


def answer(folder: Path, level: str) -> str:
    libraries = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    path = os.pathsep.join([str(folder), *sorted(libraries)])
    env = {"PYTHONPATH": path, "CRFIELD_LEVEL": level, "CRFIELD_KERNELS": ""}
    return run(sys.executable, "-S", "-c", ASK, env=env).strip()


def test_a_build_for_one_machine_says_where_it_does_not_run_and_can_grow(tmp_path: Path) -> None:
    unwanted = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "src" / "crfield", tmp_path / "crfield", ignore=unwanted)
    build(tmp_path, "machine")
    own = int(answer(tmp_path, "").removeprefix("native "))
    if own == 2:
        pytest.skip("the processor has the lowest level, which runs everywhere")
    told = answer(tmp_path, "2")
    assert told.startswith("numpy numpy the compiled kernels of crfield cannot be loaded")
    assert f"built for processors of x86-64 level {own}, and level 2 is wanted here" in told
    assert "make setup" in told

    again = build(tmp_path, "all")
    compiled = set(re.findall(r"_chain(\w*)\.dir", again))
    assert compiled == {f"_level{level}" for level in (2, 3, 4) if level != own}  # nothing that was there
    for level in range(2, own + 1):
        assert answer(tmp_path, str(level)) == f"native {level}"
