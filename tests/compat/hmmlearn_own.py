"""hmmlearn's own tests on `crfield.compat.hmmlearn`: ``python -m tests.compat.hmmlearn_own [options of pytest]``.

The installed package is copied to a folder of its own, where ``hmm.py`` gives our classes; its tests, which the wheel
holds, then import the copy. Left out are the variational models, which we do not have, and tests of its base class
and helpers. What fails after that is listed in `EXPECTED`, with the reason; a test that fails and is not there, or
passes and is, makes the command fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

LEFT_OUT = ("test_variational_*.py", "test_kl_divergence.py", "test_utils.py", "test_base.py")
EXPECTED = {
    "TestGaussianHMMWithSphericalCovars::test_underflow_from_scaling[scaling]": "expects an underflow; ours has none",
}
STAND_IN = '''"""The classes of crfield by the names of hmmlearn."""
from crfield.compat.hmmlearn.hmm import *  # noqa: F403
from crfield.compat.hmmlearn.hmm import __all__  # noqa: F401
'''


def copied(folder: Path) -> Path:
    """The package with our classes, below ``folder``; its tests."""
    found = find_spec("hmmlearn")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("hmmlearn is not installed: pip install hmmlearn")
    package = folder / "hmmlearn"
    shutil.copytree(
        found.submodule_search_locations[0], package, ignore=shutil.ignore_patterns("__pycache__", *LEFT_OUT)
    )
    (package / "hmm.py").write_text(STAND_IN)
    return package / "tests"


def main(arguments: list[str]) -> int:
    """Run them; 0 if those that fail are those that are expected to."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tests = copied(folder)
        command = [sys.executable, "-m", "pytest", "-q", "-rf", "--tb=short", "-p", "no:cacheprovider"]
        command += ["--disable-warnings", *arguments, str(tests)]
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    print(done.stdout)
    failed = {line.split("::", 1)[1].split(" ")[0] for line in done.stdout.splitlines() if line.startswith("FAILED ")}
    for name in sorted(failed | set(EXPECTED)):
        word = "expected" if name in failed and name in EXPECTED else "NEW" if name in failed else "passes now"
        print(f"{word}: {name}  {EXPECTED.get(name, '')}")
    return int(failed != set(EXPECTED) or done.returncode not in (0, 1))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
