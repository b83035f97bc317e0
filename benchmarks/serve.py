"""The server of ``crfield serve`` on the loopback address: what a request costs beside an empty one, what it bears.

A server runs in a process of its own, sixteen clients in another (`benchmarks.serve_clients`): connections that stay
open and send the next request when the answer has come. The server's CPU time is what its ``/metrics`` say of its own
process. Every answer is compared with `predict`.

- one sentence in a request, against the empty route ``/healthz``: CPU time of the server, p50 and p99;
- labels one by one against all in one call: what collecting small requests could save;
- two hundred sentences in a request, against `predict` of the same sentences in one process: sentences a second;
- a thousand malformed requests: all refused (4xx), and the memory stays where it was;
- a label that was acknowledged is there after ``kill -9``, ten times.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import crfield
from benchmarks.contestant import chain
from benchmarks.corpora import Bench
from benchmarks.table import Row, seconds
from benchmarks.timing import interleaved
from crfield.errors import ConvergenceWarning
from crfield.storage.label_store import LabelStore

ROOT = Path(__file__).parents[1]
CLIENTS = 16
REQUESTS = 20_000
COST = 1.5  # of the empty route's CPU time
MANY, SHARE = 200, 0.5
MALFORMED, GROWTH = 1_000, 8.0  # requests, and megabytes that the server may grow by
KILLS = 10


def run(bench: Bench) -> list[Row]:
    """Requests of one sentence, of many, malformed ones, and labels that outlive the server."""
    corpus = bench.chunks
    count = REQUESTS // 20 if bench.quick else REQUESTS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = chain(corpus.template, max_iter=5).fit(corpus.train.rows, corpus.train.tags)
    path = bench.path("served.crfield")
    model.save(path)
    sentences = [list(map(list, row)) for row in corpus.test.rows]
    gold = [labels.tolist() for labels in model.predict(corpus.test.rows)]
    with server(path) as port:
        rows = _one_by_one(bench, port, sentences, gold, count)
        rows.append(_many(bench, port, model, corpus.test.rows, gold))
        rows.append(_batched(model, sentences[:MANY]))
        rows += _malformed(port, sentences[0])
    return [*rows, _killed(bench, path)]


# ---------------------------------------------------------------------------------------------------- a server


@contextmanager
def server(*words: str, threads: int = 1) -> Iterator[int]:
    """A server of these models on a free port of this machine; ended by SIGTERM."""
    process, port = started(*words, threads=threads)
    try:
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def started(*words: str, threads: int = 1) -> tuple[subprocess.Popen[str], int]:
    """The process of a server, and its port once it answers."""
    command = [sys.executable, "-m", "crfield.cli.main", "serve", *words, "--port", "0", "--threads", str(threads)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stderr is not None
    for line in process.stderr:
        if "serving" in line:
            return process, int(line.partition("http://127.0.0.1:")[2].partition("/")[0])
    raise RuntimeError(f"the server ended with {process.wait()}")


def ask(port: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and answer of one request."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    sent = None if body is None else json.dumps(body).encode()
    connection.request(method, path, sent, {"content-type": "application/json"} if sent else {})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if answer.headers["content-type"] == "application/json" else text.decode()


def _metric(port: int, name: str) -> float:
    text = ask(port, "GET", "/metrics")[1]
    return float(next(line for line in text.splitlines() if line.startswith(name + " ")).split()[1])


def _clients(bench: Bench, port: int, job: dict[str, Any]) -> dict[str, Any]:
    """What the clients, in a process of their own, say of a list of requests; with the server's CPU time."""
    place = Path(bench.path("requests.json"))
    place.write_text(json.dumps({"port": port, **job}))
    before = _metric(port, "process_cpu_seconds_total")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.serve_clients", str(place)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return {**json.loads(done.stdout), "cpu": _metric(port, "process_cpu_seconds_total") - before}


# ---------------------------------------------------------------------------------------------------- comparisons


def _one_by_one(bench: Bench, port: int, sentences: Sequence[Any], gold: Sequence[Any], count: int) -> list[Row]:
    bodies = [json.dumps({"sequence": x}) for x in sentences]
    asks = {"path": "/v1/predict", "bodies": bodies, "labels": gold, "count": count, "clients": CLIENTS}
    empty = {"path": "/healthz", "bodies": [None], "labels": None, "count": count, "clients": CLIENTS}
    _clients(bench, port, asks | {"count": 500})
    turns = [(_clients(bench, port, empty), _clients(bench, port, asks)) for _ in range(2 if bench.quick else 3)]
    cost = min(asked["cpu"] for _, asked in turns) / min(bare["cpu"] for bare, _ in turns)
    last = turns[-1][1]
    wrong = sum(asked["wrong"] + asked["failed"] for _, asked in turns)

    def each(result: dict[str, Any]) -> str:
        return f"{result['cpu'] / count * 1e6:.0f} µs"

    name = f"serve: one sentence a request, {CLIENTS} clients"
    return [
        Row(
            f"{name}, CPU of the server against /healthz",
            cost,
            required=bench.judged(COST),
            better="less",
            ours=each(turns[-1][1]),
            rival=each(turns[-1][0]),
            note=f"p50 {last['p50'] * 1e3:.2f} ms, p99 {last['p99'] * 1e3:.2f} ms, "
            f"{count / last['seconds']:,.0f} requests a second",
            detail={"turns": turns},
        ),
        Row(
            f"{name}, {count * len(turns):,} requests: errors, and answers other than predict's",
            wrong,
            "",
            required=0,
            better="less",
        ),
    ]


def _many(bench: Bench, port: int, model: Any, rows: Sequence[Any], gold: Sequence[Any]) -> Row:
    parts = [slice(k, k + MANY) for k in range(0, len(rows) - MANY + 1, MANY)]
    bodies = [json.dumps({"sequences": [list(map(list, x)) for x in rows[part]]}) for part in parts]
    asks = {"path": "/v1/predict", "bodies": bodies, "labels": [gold[part] for part in parts]}
    asks |= {"count": 3 * len(parts), "clients": 2}
    _clients(bench, port, asks)
    best, alone = 0.0, 0.0
    wrong = 0
    for _ in range(3):
        told = _clients(bench, port, asks)
        best = max(best, asks["count"] * MANY / told["seconds"])
        wrong += told["wrong"] + told["failed"]
        began = time.perf_counter()
        for part in parts:
            model.predict(rows[part])
        alone = max(alone, len(parts) * MANY / (time.perf_counter() - began))
    return Row(
        f"serve: {MANY} sentences a request, sentences a second against predict in one process",
        best / alone,
        required=bench.judged(SHARE),
        ours=f"{best:,.0f}",
        rival=f"{alone:,.0f}",
        note=f"{wrong} errors or other answers",
    )


def _batched(model: Any, sentences: Sequence[Any]) -> Row:
    """What could be gained if small requests were collected: labels one by one, against all in one call."""
    tag = model.tagger().tag
    one_by_one, together = interleaved(lambda: [tag(x) for x in sentences], lambda: model.predict(sentences), turns=9)
    return Row(
        f"serve: {len(sentences)} sentences labelled one by one, against in one call: what batching could save",
        one_by_one.best / together.best,
        ours=seconds(one_by_one.best),
        rival=seconds(together.best),
    )


def malformed(body: bytes, rng: random.Random) -> tuple[bytes, bytes]:
    """A body that cannot be answered, made of a good one, and its content type."""
    kind = b"application/json"
    way = rng.randrange(12)
    if way == 0:
        return body[: rng.randrange(len(body))], kind
    if way == 1:
        return b"[" * rng.randrange(1_000, 200_000), kind
    if way == 2:
        return b'{"sequence":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001, kind
    if way == 3:
        return b'{"sequence":[[' + b"9" * rng.randrange(5_000, 50_000) + b"]]}", kind
    if way == 4:
        return body.decode().encode("utf-16"), kind
    if way == 5:
        return body[:20] + bytes([rng.randrange(128, 256)]) + body[20:], kind
    if way == 6:
        return b'{"sequence":[["\\ud800","x"]]}', kind
    if way == 7:
        wrong = rng.choice([b"NaN", b"Infinity", b"1e999", b"null", b"true", b'"text"', b"{}", b"[[1,2]]", b"[[]]"])
        return b'{"sequence":' + wrong + b"}", kind
    if way == 8:
        return body, rng.choice([b"text/plain", b"application/x-www-form-urlencoded", b"", b"multipart/form-data"])
    if way == 9:
        return b'{"sequence":[["' + b"x" * 9_000_000 + b'","y"]]}', kind
    if way == 10:
        return body[:-1] + rng.choice([b',"n_best":1e9}', b',"n_best":-1}', b',"known":[1]}', b',"modle":1}']), kind
    return rng.randbytes(rng.randrange(1, 5_000)), kind


def _malformed(port: int, sentence: Any) -> list[Row]:
    rng, body = random.Random(0), json.dumps({"sequence": sentence}).encode()
    statuses: dict[int, int] = {}

    def some(count: int) -> None:
        for _ in range(count):
            sent, kind = malformed(body, rng)
            connection = HTTPConnection("127.0.0.1", port, timeout=60)
            with suppress(BrokenPipeError, ConnectionResetError):  # refused before all was sent; the answer is there
                connection.request("POST", "/v1/predict", sent, {"content-type": kind.decode()})
            status = connection.getresponse().status
            statuses[status] = statuses.get(status, 0) + 1
            connection.close()

    some(MALFORMED // 4)  # so that what is made once is there
    before = _metric(port, "process_resident_memory_bytes")
    some(MALFORMED)
    grown = (_metric(port, "process_resident_memory_bytes") - before) / 1e6
    others = sum(count for status, count in statuses.items() if not 400 <= status < 500)
    told = ", ".join(f"{count} × {status}" for status, count in sorted(statuses.items()))
    return [
        Row(
            f"serve: {sum(statuses.values()):,} malformed requests, those not refused",
            others,
            "",
            0,
            better="less",
            note=told,
        ),
        Row(f"serve: memory grown by {MALFORMED:,} of them", max(grown, 0.0), "MB", GROWTH, better="less"),
    ]


def _killed(bench: Bench, path: str) -> Row:
    """Labels that were acknowledged and are gone after kill -9, at a moment by chance after the answer."""
    rng, kept, lost = random.Random(1), {}, 0
    pool, store = Path(bench.path("pool.txt")), bench.path("labels.sqlite")
    crfield.write_columns(pool, bench.chunks.test.rows[:200], separator=" ")
    for _ in range(KILLS):
        process, port = started(path, "--label", str(pool), "--store", store)
        for _ in range(rng.randrange(1, 6)):
            item = ask(port, "POST", "/v1/labelling/next", {"person": "ann"})[1]["item"]
            answer = {"person": "ann", "sequence": item["sequence"], "version": 0, "labels": item["labels"]}
            status, _ = ask(port, "POST", "/v1/labelling/answer", answer)
            assert status == 200
            kept[item["sequence"]] = item["labels"]
        time.sleep(rng.choice([0.0, 0.0, rng.random() / 5]))  # the model may be learning
        process.kill()
        process.wait(30)
        with LabelStore(store) as found:
            there = {one.sequence: one.labels for one in found.answers()}
        lost += sum(there.get(number) != labels for number, labels in kept.items())
    name = f"serve: labels lost by kill -9, {KILLS} times"
    return Row(name, lost, "", required=0, better="less", note=f"{len(kept)} labels were acknowledged")
