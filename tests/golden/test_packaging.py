"""What users install: the source archive, the wheel without compiled code, and the wheel with it.

Wheels are built from this checkout without isolation or network, unpacked beside each other, and used by an
interpreter that sees only them and the libraries they need (``-S``: no editable install). The compiled wheel is
built without optimisation, which is far quicker and compiles the same sources.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import stat
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scikit_build_core", reason="the build tools are in the extra 'dev'")
pytest.importorskip("build", reason="the build tools are in the extra 'dev'")

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="needs the sources of the project")
GIL = not sysconfig.get_config_var("Py_GIL_DISABLED")
ADDRESS = "https://example.org/o/crfield"
CAN_COMPILE = shutil.which("cmake") and (shutil.which("c++") or shutil.which("g++") or shutil.which("clang++"))

USE = """
import io, json, warnings
import numpy as np
import crfield
from crfield.errors import SpeedWarning
from crfield.kernels import choice

X = [[{"word": w, "length": float(len(w)), "vector": np.array([len(w), -1.0])} for w in line.split()]
     for line in ("the dog barks", "a cat", "dogs bark", "the old cat sleeps")]
y = [["D", "N", "V"], ["D", "N"], ["N", "V"], ["D", "J", "N", "V"]]
rows = [[(step["word"], step["word"][-1]) for step in x] for x in X]
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always", SpeedWarning)
    answers = {"body": choice.chosen(), "file": crfield.__file__, "version": crfield.__version__}
    for name, data, options in (
        ("dicts", X, {"transition_features": ["length"]}),
        ("template", rows, {"template": "U00:%x[0,0]\\nU01:%x[-1,1]\\nB", "l1": 0.05}),
    ):
        model = crfield.ChainCRF(tol=1e-12, max_iter=2000, **options).fit(data, y)
        stream = io.BytesIO()
        model.save(stream)
        stream.seek(0)
        again = crfield.load(stream)
        assert [a.tolist() for a in again.predict(data)] == [a.tolist() for a in model.predict(data)]
        answers[name] = {
            "objective": model.objective_,
            "labels": [a.tolist() for a in again.predict(data)],
            "probabilities": [a.tolist() for a in again.predict_proba(data)],
        }
answers["told"] = [one.category.__name__ for one in told]
print(json.dumps(answers))
"""


LEVEL = """
import warnings
from crfield.errors import SpeedWarning
from crfield.kernels import choice
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always", SpeedWarning)
    print(choice.chosen(), choice.level(), *[one.message for one in told])
"""


def run(*command: str, env: dict[str, str] | None = None, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def wheel(source: Path, folder: Path, *options: str, env: dict[str, str] | None = None) -> Path:
    """Build a wheel of the source into the folder; nothing is written beside the sources."""
    settings = [f"--config-settings={option}" for option in (f"build-dir={folder / 'build'}", *options)]
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--no-cache-dir")
    run(*pip, "--wheel-dir", str(folder), *settings, str(source), env=env)
    (made,) = folder.glob("*.whl")
    return made


def used(made: Path, folder: Path) -> Any:
    """What a clean interpreter answers that finds crfield only in this wheel."""
    pip = (sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--no-compile")
    run(*pip, "--target", str(folder / "installed"), str(made))
    libraries = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    env = {"PYTHONPATH": os.pathsep.join([str(folder / "installed"), *sorted(libraries)]), "CRFIELD_KERNELS": ""}
    answers = json.loads(run(sys.executable, "-S", "-W", "error", "-c", USE, env=env, cwd=folder))
    assert Path(answers["file"]).is_relative_to(folder)
    return answers


def needs(metadata: str) -> set[str]:
    """The packages without which a wheel does not run, by its METADATA."""
    lines = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra" not in line]
    return {re.split(r"[<>=;!~ ]", line.removeprefix("Requires-Dist:").strip())[0] for line in lines}


def agree(one: Any, other: Any) -> None:
    for name in ("dicts", "template"):
        assert one[name]["objective"] == pytest.approx(other[name]["objective"], rel=1e-6)
        assert one[name]["labels"] == other[name]["labels"]
        for a, b in zip(one[name]["probabilities"], other[name]["probabilities"], strict=True):
            assert [p for row in a for p in row] == pytest.approx([p for row in b for p in row], abs=1e-5)


@pytest.fixture(scope="module")
def here() -> Any:
    """The answers of the crfield that runs these tests."""
    return json.loads(run(sys.executable, "-c", USE))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    told = {"CRFIELD_ADDRESS": ADDRESS}
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(folder), str(ROOT), env=told)
    (made,) = folder.glob("*.tar.gz")
    return made


@pytest.fixture(scope="module")
def pure(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel(ROOT, tmp_path_factory.mktemp("pure"), env={"CRFIELD_PURE": "1"})


def test_the_source_archive_holds_the_sources_and_nothing_else(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {member.name.split("/", 1)[1] for member in archive.getmembers() if "/" in member.name}
        told = archive.extractfile(next(name for name in archive.getnames() if name.endswith("/PKG-INFO")))
        assert told
        assert "Dynamic: Requires-Dist" in told.read().decode().splitlines()  # each wheel has its own list
    for needed in ("LICENSE", "CMakeLists.txt", "pyproject.toml", "README.md", "PKG-INFO", "src/crfield/py.typed"):
        assert needed in names
    for folder, patterns in (
        ("native", ("*.cpp", "*.hpp", "*.cmake")),
        ("src/crfield", ("*.py", "*.html")),
        ("studies", ("*.py",)),
    ):
        found = {str(path.relative_to(ROOT)) for pattern in patterns for path in (ROOT / folder).rglob(pattern)}
        assert found
        assert found <= names, sorted(found - names)
    unwanted = [
        name
        for name in names
        if name.endswith((".so", ".pyc", ".o", ".whl", ".crfield"))
        or name.split("/")[0] in (".venv", "build", "dist", ".git", ".ci", "benchmarks")
        or "__pycache__" in name
    ]
    assert not unwanted
    assert sdist.stat().st_size < 2_500_000


def test_the_pure_wheel_is_complete_and_says_so(pure: Path) -> None:
    assert pure.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(pure) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith("METADATA"))
        text = archive.read(metadata).decode()
        entries = archive.read(metadata.replace("METADATA", "entry_points.txt")).decode()
    assert not [name for name in names if name.endswith((".so", ".pyd", ".cpp", ".hpp"))]
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert "crfield/py.typed" in names
    assert "crfield/report/replay.html" in names
    for part in ("page.html", "page.css", "basics.js", "detail.js", "items.js", "start.js"):
        assert f"crfield/report/page/{part}" in names
    assert "License-Expression: BSD-3-Clause" in text
    assert "Requires-Python: >=3.11" in text
    assert needs(text) == {"numpy", "scipy", "scikit-learn", "typer", "rich"}
    assert "crfield = crfield.cli.main:main" in entries


def test_the_pure_wheel_works_in_a_clean_interpreter(pure: Path, here: Any, tmp_path: Path) -> None:
    answers = used(pure, tmp_path)
    assert answers["body"] == "numpy"
    assert answers["told"] == ["SpeedWarning"]
    assert answers["version"] == here["version"]
    agree(answers, here)


def test_an_installed_wheel_has_no_studies_and_says_where_they_are(pure: Path, tmp_path: Path) -> None:
    """Not even those of the current folder, which may be anybody's."""
    with zipfile.ZipFile(pure) as archive:
        assert not [name for name in archive.namelist() if name.startswith(("studies/", "crfield/experiments/"))]
    used(pure, tmp_path)
    foreign = tmp_path / "studies"
    foreign.mkdir()
    for name in ("__init__", "catalogue", "framework", "record"):
        (foreign / f"{name}.py").write_text("raise SystemExit('a stranger was run')\n")
    libraries = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    path = os.pathsep.join([str(tmp_path / "installed"), *sorted(libraries)])
    for words in (["experiment", "label-bias"], ["reproduce", "veb-fig1a"], ["experiment", "--list"]):
        told = subprocess.run(
            [sys.executable, "-S", "-c", "from crfield.cli.main import main; main()", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert told.returncode == 1, told.stderr
        assert not told.stdout
        assert told.stderr.startswith("error: the studies are no part of the installed package")
        assert told.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("wish", "free", "asked"),
    [("", 0, True), ("0", 0, True), ("off", 0, True), ("1", 0, False), ("yes", 0, False), ("", 1, False)],
)
def test_what_modules_share_is_asked_for_by_wheels_that_use_it(
    wish: str, free: int, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wheel of NumPy bodies and those of free-threaded Pythons go where nanobind-backend may not exist."""
    found = sysconfig.get_config_var
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: free if name == "Py_GIL_DISABLED" else found(name))
    monkeypatch.setenv("CRFIELD_PURE", wish)
    made = runpy.run_path(str(ROOT / "native" / "requirements.py"))
    names = made["dynamic_metadata"]({"libraries": ["numpy"], "backend": ["nanobind-backend"]}, {})["dependencies"]
    asked = asked and sys.implementation.name == "cpython"
    assert names == ["numpy", *(["nanobind-backend"] if asked else [])]


README = """![A picture](docs/pictures/marginals.png)

*What it shows.*

Read [the guide](docs/guides/graphs.md#images), [another](https://example.org/x) or `labels[0](docs)`
and [this](nowhere.md).
"""


def test_the_page_of_an_index_has_links_that_lead_somewhere() -> None:
    made = runpy.run_path(str(ROOT / "native" / "page.py"))
    rest = "[another](https://example.org/x) or `labels[0](docs)`\nand [this](nowhere.md).\n"
    assert made["text_for"](README, "", "1.2") == f"Read the guide, {rest}"
    there = made["text_for"](README, ADDRESS, "1.2")
    assert there == (
        f"![A picture]({ADDRESS}/raw/v1.2/docs/pictures/marginals.png)\n\n*What it shows.*\n\n"
        f"Read [the guide]({ADDRESS}/blob/v1.2/docs/guides/graphs.md#images), {rest}"
    )
    whole = made["text_for"]((ROOT / "README.md").read_text("utf-8"), "", "1.2")
    assert "](docs/" not in whole
    assert "marginals.png" not in whole
    assert made["urls_for"]("", "1.2") == {}


def test_a_source_archive_keeps_its_page(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        told = archive.extractfile(f"{sdist.name.removesuffix('.tar.gz')}/PKG-INFO")
        assert told is not None
        text, urls = runpy.run_path(str(ROOT / "native" / "page.py"))["kept"](told.read())
    assert urls["Source"] == ADDRESS
    assert text.startswith("# crfield\n")
    assert f"]({ADDRESS}/raw/v" in text


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="a broken compiler is a shell script here")
def test_a_compiler_that_fails_is_heard(tmp_path: Path) -> None:
    """The NumPy bodies alone are chosen, not fallen into: the message says how."""
    compiler = tmp_path / "c++"
    real = shutil.which("c++") or shutil.which("g++") or "/bin/false"
    refusal = '*Unity/*|*native/*) echo "internal compiler error: tired" >&2; exit 1;;'
    compiler.write_text(f'#!/bin/sh\ncase "$*" in {refusal} esac\nexec {real} "$@"\n')
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    command = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index")
    settings = f"--config-settings=build-dir={tmp_path / 'build'}"
    done = subprocess.run(
        [*command, "--wheel-dir", str(tmp_path), settings, str(ROOT)],
        env={**os.environ, "CXX": str(compiler), "CMAKE_CXX_COMPILER_LAUNCHER": "", "CCACHE_DISABLE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    told = done.stdout + done.stderr
    assert done.returncode, told
    assert "internal compiler error: tired" in told
    assert "CRFIELD_PURE=1" in told
    assert not list(tmp_path.glob("*.whl"))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not CAN_COMPILE, reason="no compiler or no CMake here")
def test_a_native_wheel_is_built_from_the_source_archive(sdist: Path, here: Any, tmp_path: Path) -> None:
    """For the processor at hand, as `make demo` builds; then the other levels are added, as `make setup` does."""
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    source, build = tmp_path / sdist.name.removesuffix(".tar.gz"), tmp_path / "made" / "build"
    quick = {"CMAKE_CXX_FLAGS_DEBUG": "-O0", "CRFIELD_LEVELS": "machine"}
    options = ("cmake.build-type=Debug", *(f"cmake.define.{name}={value}" for name, value in quick.items()))
    made = wheel(source, tmp_path / "made", *options, env={"CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count() or 1)})
    assert "-cp311-abi3-" in made.name or sys.implementation.name != "cpython" or not GIL
    with zipfile.ZipFile(made) as archive:
        compiled = {Path(name).name.split(".")[0] for name in archive.namelist() if name.endswith((".so", ".pyd"))}
        (metadata,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        told = archive.read(metadata).decode()
    asked = needs(told)
    assert ("nanobind-backend" in asked) == ("-abi3-" in made.name), asked
    assert f"Project-URL: Source, {ADDRESS}\n" in told, "a wheel of a source archive has the page of the archive"
    assert f"]({ADDRESS}/blob/v" in told
    assert compiled == {f"_{part.parent.name}" for part in ROOT.glob("native/*/module.cmake")}
    answers = used(made, tmp_path)
    assert answers["body"] == "native"
    agree(answers, here)
    if sys.platform.startswith("linux") and sysconfig.get_platform().endswith("x86_64"):
        levels_are_added(source, build, tmp_path)


def levels_are_added(source: Path, build: Path, folder: Path) -> None:
    """A build for one machine says where it does not run, and other levels come to it without compiling the rest."""
    own = int(level(folder, "").removeprefix("native "))
    if own == 2:  # which runs everywhere
        return
    told = level(folder, "2")
    assert told.startswith("numpy numpy the compiled kernels of crfield cannot be loaded")
    assert f"built for processors of x86-64 level {own}, and level 2 is wanted here" in told
    assert "make setup" in told

    run("cmake", "-S", str(source), "-B", str(build), "-DCRFIELD_LEVELS=all")
    again = run("cmake", "--build", str(build), "--target", "_chain", "--verbose")
    assert set(re.findall(r"-o CMakeFiles/_chain(\w*)\.dir", again)) == {f"_level{n}" for n in (2, 3, 4) if n != own}
    (module,) = build.glob("_chain.*")
    shutil.copy(module, folder / "installed" / "crfield" / "kernels")
    for wanted in range(2, own + 1):
        assert level(folder, str(wanted)) == f"native {wanted}"


def level(folder: Path, wanted: str) -> str:
    """The kernels that the package installed in the folder chooses, their level, and what it says."""
    libraries = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    path = os.pathsep.join([str(folder / "installed"), *sorted(libraries)])
    env = {"PYTHONPATH": path, "CRFIELD_LEVEL": wanted, "CRFIELD_KERNELS": ""}
    return run(sys.executable, "-S", "-c", LEVEL, env=env, cwd=folder).strip()
