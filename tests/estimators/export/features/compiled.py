"""A header with features, compiled and run: rows of numbers in, label, columns and probabilities out."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np

WARNINGS = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
# each compiler as C99 and as C++17; the latter may fuse products and sums, which the header must decline
BUILDS = [
    command
    for compiler, plus in (("gcc", "g++"), ("clang", "clang++"))
    for command in ([compiler, "-std=c99", "-O2"], [plus, "-std=c++17", "-O2", "-march=native"])
    if shutil.which(command[0])
]

QUICK = [*BUILDS[0][:2], "-O0"] if BUILDS else []

DRIVER = """
#include "{file}"
#include <stdio.h>
int main(void) {{
  static {name}_stream s;
  double in[{width} + 1], out[1 + {name}_COLUMNS + {name}_LABELS];
  fprintf(stderr, "%d", (int)sizeof s);
  {name}_begin(&s);
  while (fread(in, sizeof(double), {width} + 1, stdin) == {width} + 1) {{
    int said;
    if (in[0] == 0.0) said = {name}_finish(&s);
    else {{
{push}
    }}
    out[0] = said;
    for (int k = 0; k < {name}_COLUMNS; k++) out[1 + k] = s.x[k];
    for (int k = 0; k < {name}_LABELS; k++) out[1 + {name}_COLUMNS + k] = s.model.probabilities[k];
    fwrite(out, sizeof(double), 1 + {name}_COLUMNS + {name}_LABELS, stdout);
  }}
  return 0;
}}
"""


class Answers:
    """What the robot says: labels (n,), columns (n, K), probabilities (n, L), and the bytes of its state."""

    def __init__(self, told: bytes, size: bytes, n_columns: int, n_labels: int) -> None:
        rows = np.frombuffer(told).reshape(-1, 1 + n_columns + n_labels)
        self.labels = rows[:, 0].astype(int)
        self.columns, self.probabilities = rows[:, 1 : 1 + n_columns], rows[:, 1 + n_columns :]
        self.bytes = int(size)


def run(build: list[str], header: Path, push: str, rows: np.ndarray, *, n_columns: int, n_labels: int) -> Answers:
    """Compile a driver around the header and feed it rows (n, width); a row of NaN ends a sequence."""
    name, width = header.stem, rows.shape[1]
    source = header.with_name("main.cpp" if "++" in build[0] else "main.c")
    source.write_text(DRIVER.format(file=header.name, name=name, width=width, push=push))
    program = header.with_name("program")
    built = [*build, *WARNINGS, str(source), "-o", str(program), "-lm"]
    done = subprocess.run(built, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ends = np.isnan(rows).all(axis=1)
    fed = np.column_stack([np.where(ends, 0.0, 1.0), rows])
    ran = subprocess.run([str(program)], input=np.ascontiguousarray(fed).tobytes(), check=True, capture_output=True)
    return Answers(ran.stdout, ran.stderr, n_columns, n_labels)
