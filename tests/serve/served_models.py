"""Served models for tests: small ones of each form, an application over them, and a real server on a free port."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np

import crfield

HOSTILE = "</script><img src=x onerror=alert(1)>"
ROOT = Path(__file__).parents[2]


def make_models(folder: Path) -> dict[str, Any]:
    """A model of token columns, of records, of numbers, and one whose labels and features are hostile names."""
    made = crfield.make_phrases(60, random_state=3)
    columns = [[(word, word[:1]) for word in phrase] for phrase in made.tokens]
    records = [crfield.phrase_features(phrase) for phrase in made.tokens]
    rng = np.random.default_rng(0)
    y = [rng.integers(0, 2, 6).tolist() for _ in range(20)]
    numbers = [np.array(own)[:, None] + 0.4 * rng.normal(size=(6, 3)) for own in y]
    template = "U0:%x[0,0]\nU1:%x[-1,0]\nU2:%x[0,1]\nB\n"
    models: dict[str, Any] = {
        "columns": crfield.ChainCRF(template=template, tol=1e-3).fit(columns, made.labels),
        "records": crfield.ChainCRF(tol=1e-3).fit(records, made.labels),
        "numbers": crfield.ChainCRF(tol=1e-3).fit(numbers, y),
        "hostile": crfield.ChainCRF(template="U0:%x[0,0]\nB").fit(
            [[(HOSTILE,), ("b",)], [("b",), (HOSTILE,)]], [[HOSTILE, "O"], ["O", HOSTILE]]
        ),
    }
    for name, model in models.items():
        model.save(folder / f"{name}.crfield")
    crfield.write_columns(folder / "pool.txt", columns[:30], separator=" ")
    crfield.write_columns(
        folder / "dev.txt",
        [[(*row, label) for row, label in zip(*both)] for both in zip(columns[30:], made.labels[30:])],
    )
    return {"columns": columns, "records": records, "numbers": numbers, "models": models, "gold": made.labels}


@contextmanager
def real_server(*words: object) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """``crfield serve words`` in a process of its own, and its port; killed at the end if it is still there."""
    command = [sys.executable, "-m", "crfield.cli.main", "serve", *map(str, words), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        yield process, _port(process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(30)
        assert process.stderr is not None
        process.stderr.close()


def _port(process: subprocess.Popen[str]) -> int:
    said = []
    assert process.stderr is not None
    for line in process.stderr:
        said.append(line)
        if "serving" in line:
            return int(line.partition("http://127.0.0.1:")[2].partition("/")[0])
    raise AssertionError("".join(said))


def ask(
    port: int, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """Status and answer of one request to a real server."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, sent, {"content-type": "application/json", **(headers or {})})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if answer.headers["content-type"] == "application/json" else text.decode()
