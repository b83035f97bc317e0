"""An installed crfield, asked without its sources: README's example, the demo, and tests that need no source tree.

    python tests/golden/installed.py            # in an environment with crfield, pytest, pytest-timeout, hypothesis

The tests are copied to a folder of their own, so that neither `src` nor `studies` is in reach: crfield must be the
installed one. `make wheels` and the workflow that publishes run this on every wheel.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEED_NO_SOURCES = (
    "tests/kernels/test_records.py",
    "tests/kernels/test_columns.py",
    "tests/kernels/test_tagging.py",
    "tests/kernels/chain",
    "tests/inference/test_streaming.py",
    "tests/contracts/test_threads.py",
    "tests/storage/foreign",
    "tests/stored/test_stored.py",
)


def run(*command: str, cwd: Path) -> None:
    print("·", *command[1:], flush=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    environment.pop("CRFIELD_KERNELS", None)
    if sys.argv[1:] == ["any"]:  # a pure wheel, chosen without a warning
        environment["CRFIELD_KERNELS"] = "numpy"
    subprocess.run(command, cwd=cwd, env=environment, check=True)


def main() -> None:
    """Stop at the first thing that fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "pytest.ini").write_text(
            "[pytest]\naddopts = -q --strict-markers -p no:cacheprovider\nmarkers = slow: compiles native code\n"
            "timeout = 600\nfilterwarnings = error::crfield.errors.CrfieldWarning\n"
        )
        compiled = "sys.argv[1] == 'any' or choice.chosen() == 'native'"
        where = f"import sys, crfield; from crfield.kernels import choice; assert {compiled}, choice.chosen(); "
        where += "print(crfield.__file__, sys.version.split()[0], choice.level())"
        run(sys.executable, "-W", "error", "-c", where, *(sys.argv[1:] or ["native"]), cwd=folder)
        example = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)[0]
        (folder / "readme.py").write_text(example, "utf-8")
        run(sys.executable, "readme.py", cwd=folder)
        fewer = ["--phrases", "2000"] if sys.argv[1:] == ["any"] else []  # minutes otherwise
        run(sys.executable, "-c", "from crfield.cli.main import main; main()", "demo", *fewer, cwd=folder)
        if sys.argv[1:] == ["any"]:
            return  # the tests are for both bodies; tests/golden/test_packaging.py asks the pure one
        tests = [path for path in NEED_NO_SOURCES if (folder / path).exists()]
        run(sys.executable, "-m", "pytest", *tests, cwd=folder)


if __name__ == "__main__":
    main()
