"""Tests with the oldest and the newest allowed libraries on every Python of the machine: ``python -m tests.matrix``.

Each pair of a Python and an end of the range gets an environment of its own in ``build/matrix``, with the wheel
installed and the tests copied beside it, so that nothing of the source tree is seen but ``tests/``. Oldest are the
floors of `pyproject.toml`, or `EARLIEST` where a Python has no wheels of these. One wheel of the stable ABI serves
them all: it is built once, or is the one that ``--wheel`` names. ``--only oldest`` leaves out the other end,
``--python 3.12`` the other Pythons, ``--part kernels`` the other folders of tests; what follows goes to pytest.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
LIBRARIES = ("numpy", "scipy", "scikit-learn")
EARLIEST = {  # the first versions with wheels for a Python
    "3.12": {"scipy": "1.11.2"},
    "3.13": {"numpy": "2.1.0", "scipy": "1.14.1"},
    "3.14": {"numpy": "2.3.2", "scipy": "1.16.1", "scikit-learn": "1.7.2"},
}
TOOLS = ("pytest>=8", "pytest-timeout>=2.3", "hypothesis>=6.100", "pytest-xdist>=3.6")
NEEDS_PAGES = "tests/contracts/test_add_an_estimator.py"  # compares with a page of the source tree
PART = ("contracts", "core", "inference", "kernels", "metrics", "objectives", "optimize", "stored")


def floors(python: str) -> list[str]:
    """The oldest allowed libraries for a Python, as pip reads them."""
    given = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dynamic-metadata"]
    least = dict(line.split(">=") for one in given for line in one.get("libraries", ()))
    return [f"{name}=={EARLIEST.get(python, {}).get(name, least[name])}" for name in LIBRARIES]


def interpreter(version: str) -> str | None:
    """A Python of that version that starts: on the path, or one of pyenv's."""
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for name in (f"python{version}", *sorted(map(str, kept.glob(f"{version}.*/bin/python")))):
        if (
            shutil.which(name)
            and not subprocess.run([name, "--version"], capture_output=True, check=False).returncode
        ):
            return name
    return None


def run(*command: str, cwd: Path = ROOT) -> int:
    print("$", *command, flush=True)
    return subprocess.run(command, cwd=cwd, check=False).returncode


def built(python: str, folder: Path) -> Path:
    """The wheel of this tree."""
    shutil.rmtree(folder, ignore_errors=True)
    if run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)):
        raise SystemExit(f"{python} could not build a wheel.")
    return next(folder.glob("crfield-*.whl"))


def tested(name: str, version: str, end: str, wheel: Path, parts: list[str], options: list[str]) -> str:
    """Make the environment, run the tests; a word for the table."""
    folder = ROOT / "build" / "matrix" / f"{version}-{end}"
    shutil.rmtree(folder, ignore_errors=True)
    if run(name, "-m", "venv", str(folder)):
        return "no environment"
    python = str(folder / "bin" / "python")
    libraries = floors(version) if end == "oldest" else list(LIBRARIES)
    upgrade = ["--upgrade"] if end == "newest" else []
    if run(python, "-m", "pip", "install", "--quiet", *upgrade, str(wheel), *libraries, *TOOLS):
        return "not installed"
    run(python, "-m", "pip", "list", "--format", "freeze")
    shutil.copytree(ROOT / "tests", folder / "work" / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder / "work")
    places = [f"tests/{part}" for part in parts]
    failed = run(python, "-m", "pytest", f"--ignore={NEEDS_PAGES}", *options, *places, cwd=folder / "work")
    return "failed" if failed else "passed"


def main(arguments: list[str]) -> int:
    """The table; 1 if some run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path)
    parser.add_argument("--only", choices=["oldest", "newest"])
    parser.add_argument("--python", choices=PYTHONS, action="append", help="can be given more than once")
    parser.add_argument("--part", choices=PART, action="append", help="so can this")
    known, options = parser.parse_known_args(arguments)
    found = {}
    wheel = known.wheel
    for version in known.python or PYTHONS:
        name = interpreter(version)
        if name is None:
            found[version, "both"] = "not on this machine"
            continue
        wheel = wheel or built(name, ROOT / "build" / "matrix" / "wheel")
        for end in ("oldest", "newest"):
            if known.only in (None, end):
                found[version, end] = tested(name, version, end, wheel.resolve(), known.part or list(PART), options)
    for (version, end), word in found.items():
        print(f"Python {version}, {end} libraries: {word}")
    return int(any(word in ("failed", "not installed", "no environment") for word in found.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
