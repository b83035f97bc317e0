"""Which bodies run where compiled modules are missing, and what is said of it: in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crfield import kernels

HIDDEN = """
import sys, threading, warnings
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.startswith("crfield.kernels._") and name.split(".")[-1] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}")

sys.meta_path.insert(0, Missing())
from crfield import ChainCRF
from crfield.errors import SpeedWarning

def work():
    return ChainCRF().fit([[["a"], ["b"]]], [["N", "V"]]).predict([[["b"]]])[0].tolist()

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    threads = [threading.Thread(target=work) for _ in range({threads})]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert work() == ["V"]
from crfield.kernels import choice
print(choice.chosen())
for one in caught:
    print(one.category.__name__, one.filename, one.message)
"""
# Compiled modules lie beside the sources, or, of an installation in place, among the installed packages.
ALL = sorted({path.name.split(".")[0] for folder in kernels.__path__ for path in Path(folder).glob("_*.so")})


def run(names: list[str], *, asked: str = "", threads: int = 0) -> list[str]:
    """Lines of the program above without these compiled modules."""
    text = HIDDEN.format(names=set(names) or "()", threads=threads)
    env = {**os.environ, "CRFIELD_KERNELS": asked, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, env=env, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(not ALL, reason="nothing is compiled here")
def test_one_warning_where_compiled_modules_are_missing() -> None:
    body, *told = run(ALL, threads=4)
    assert body == "numpy"
    assert len(told) == 1, told
    words = ("SpeedWarning <string>", "'crfield.kernels._chain'", "times as long", "C++17", "CRFIELD_KERNELS=numpy")
    assert all(word in told[0] for word in words)


@pytest.mark.skipif(not ALL, reason="nothing is compiled here")
def test_a_module_that_is_missing_alone_is_replaced_alone() -> None:
    body, *told = run(["_vectors", "_records"])
    assert body == "native"
    assert len(told) == 1
    assert "'crfield.kernels._" in told[0]


@pytest.mark.skipif(not ALL, reason="nothing is compiled here")
def test_nothing_is_said_of_what_was_chosen_or_is_there() -> None:
    assert run(ALL, asked="numpy") == ["numpy"]
    assert run([]) == ["native"]


def test_compiled_modules_that_were_asked_for_and_are_missing_are_an_error() -> None:
    with pytest.raises(AssertionError, match="CRFIELD_KERNELS=native asks for compiled kernels"):
        run(["_chain", "_records"], asked="native")
