"""What must never happen: another page's requests, another machine's without a token, paths, markup, floods."""

from __future__ import annotations

import random
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from benchmarks.serve import malformed
from starlette.testclient import TestClient

from crfield.cli.serving import manner_of
from crfield.errors import InputError
from crfield.serve import server
from crfield.serve.app import Service
from crfield.serve.gate import Rules
from crfield.serve.models import Shelf
from tests.cases.command_line import run
from tests.serve.conftest import shelf_of
from tests.serve.served_models import HOSTILE, ask, real_server

Made = dict[str, Any]
TOKEN = "a-token-of-some-length"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "", "[::2]:1", "169.254.1.1"]
)
def test_other_names_than_this_machines_are_refused(client: TestClient, host: str) -> None:
    assert client.get("/healthz", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1234", "127.0.0.1:8765", "[::1]:8765", "[::1]"])
def test_the_names_of_this_machine_are_answered(client: TestClient, host: str) -> None:
    assert client.get("/healthz", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9"},
        {"origin": "http://[bad"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_other_pages_may_not_ask(client: TestClient, headers: dict[str, str]) -> None:
    asked = {"model": "columns", "sequence": []}
    assert client.post("/v1/predict", json=asked, headers=headers).status_code == 403
    own = {"origin": "http://127.0.0.1", "sec-fetch-site": "same-origin"}
    assert client.post("/v1/predict", json=asked, headers=own).status_code == 200


def test_no_answer_lets_other_origins_read_it(client: TestClient) -> None:
    for path in ("/", "/healthz", "/v1/models", "/openapi.json"):
        headers = client.get(path, headers={"origin": "http://evil.example"}).headers
        assert not [name for name in headers if name.startswith("access-control")]


def test_a_form_of_another_page_is_no_json(client: TestClient) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = client.post("/v1/predict", content=b'{"sequence": []}', headers={"content-type": kind})
        assert answer.status_code == 415


def test_malformed_requests_are_refused_each(client: TestClient, made: Made) -> None:
    rng = random.Random(7)
    body = b'{"model": "columns", "sequence": [["a", "b"], ["c", "d"]]}'
    seen = set()
    for _ in range(400):
        sent, kind = malformed(body, rng)
        answer = client.post("/v1/predict", content=sent[:200_000], headers={"content-type": kind.decode()})
        assert 400 <= answer.status_code < 500, (sent[:80], answer.text)
        assert answer.json()["error"]["message"]
        seen.add(answer.status_code)
    assert seen >= {400, 413, 415}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"sequence": NaN}', "NaN"),
        (b'{"sequence": [[-Infinity]]}', "-Infinity"),
        (b'{"sequence": [[' + b"1" * 5_000 + b"]]}", "number that is too large"),
        (b'{"sequence": [["\xff"]]}', "not UTF-8"),
        (b'{"sequence": [["\\ud800"]]}', "surrogate"),
        (b'{"sequence": [["\\ud83d\\ude00", "x"', "no JSON"),
        (b"[]", "must be a JSON object, got a list"),
        (b"", "no JSON"),
    ],
)
def test_strict_json(client: TestClient, body: bytes, words: str) -> None:
    answer = client.post("/v1/predict", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


def test_whole_surrogate_pairs_are_text(client: TestClient) -> None:
    body = b'{"model": "columns", "sequence": [["\\ud83d\\ude00", "x"]]}'
    assert client.post("/v1/predict", content=body, headers={"content-type": "application/json"}).status_code == 200


def test_sizes_are_limited(client: TestClient) -> None:
    assert client.post("/v1/predict", json={"model": "columns", "text": "a b\n" * 30_000}).status_code == 413
    many = client.post("/v1/predict", json={"model": "columns", "sequence": [["a"]] * 12_000, "n_best": 100})
    assert many.status_code in (413, 422)


def test_no_path_of_a_request_touches_the_disk(client: TestClient) -> None:
    for path in (
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/style.css/../app.py",
        "/pages/style.css",
        "/replay/../x",
    ):
        assert client.get(path).status_code in (404, 200)
        assert "root:" not in client.get(path).text
    for model in ("../columns", "/etc/passwd", "columns.crfield"):
        assert client.post("/v1/predict", json={"model": model, "sequence": []}).status_code == 404


def test_pages_have_a_strict_policy_and_nothing_inline(client: TestClient) -> None:
    for path in ("/", "/shared.js", "/style.css"):
        policy = client.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert client.get(path).headers["x-content-type-options"] == "nosniff"
    page = client.get("/").text
    assert "<style" not in page
    assert '<script type="module" src="/explorer.js"></script>' in page
    assert page.count("<script") == 1
    assert "onclick" not in page


def test_hostile_names_are_data(client: TestClient) -> None:
    answer = client.post("/v1/predict", json={"model": "hostile", "sequence": [[HOSTILE], ["b"]], "marginals": True})
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["labels"] == [HOSTILE, "O"]
    assert HOSTILE in answer.json()["classes"]


# ------------------------------------------------------------------ beyond this machine


def test_elsewhere_only_with_a_token(made: Made) -> None:
    told = run("serve", made["folder"] / "columns.crfield", "--host", "0.0.0.0", "--port", "0")
    assert told.exit_code == 1
    assert "a token is needed" in told.output
    with pytest.raises(InputError, match="at least 16"):
        server.bound("0.0.0.0", 0, "short")
    server.bound("0.0.0.0", 0, TOKEN).close()


def test_the_token_is_asked_for(made: Made) -> None:
    service = Service(shelf_of(made["folder"], "columns"), Rules(local=False, token=TOKEN))
    with TestClient(service.app(), base_url="http://box.example", raise_server_exceptions=False) as client:
        for given in (
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": TOKEN},
            {"authorization": f"Bearer {TOKEN}x"},
        ):
            assert client.get("/v1/models", headers=given).status_code == 401
            assert client.get("/metrics", headers=given).status_code == 401
            assert client.post("/v1/predict", json={"sequence": []}, headers=given).status_code == 401
        right = {"authorization": f"Bearer {TOKEN}"}
        assert client.get("/v1/models", headers=right).status_code == 200
        assert client.post("/v1/predict", json={"sequence": []}, headers=right).status_code == 200
        assert client.get("/").status_code == 200  # the page itself holds nothing
        assert client.get("/healthz").status_code == 200


# ------------------------------------------------------------------ a real connection


def flooded(raw: socket.socket) -> bool:
    """Whether the server ends the connection before two megabytes of headers have come."""
    try:
        for _ in range(200):
            raw.sendall(b"X-A: " + b"a" * 10_000 + b"\r\n")
            time.sleep(0.001)
    except OSError:
        return True
    return False


def test_a_real_server_answers_and_ends_in_order(made: Made) -> None:
    with real_server(made["folder"] / "columns.crfield") as (process, port):
        x = [list(row) for row in made["columns"][0]]
        gold = made["models"]["columns"].predict([made["columns"][0]])[0].tolist()
        assert ask(port, "POST", "/v1/predict", {"sequence": x})[1]["labels"] == gold
        assert ask(port, "GET", "/healthz", headers={"host": "evil.example"})[0] == 421
        assert ask(port, "POST", "/v1/predict", b"x" * 9_000_000)[0] == 413
        with socket.create_connection(("127.0.0.1", port)) as raw:  # a head without end
            raw.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            assert flooded(raw)
        assert ask(port, "POST", "/v1/predict", {"sequence": x})[1]["labels"] == gold
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_the_request_under_way_is_answered_before_the_end(made: Made) -> None:
    with real_server(made["folder"] / "columns.crfield") as (process, port):
        body = b'{"sequence": [["a", "b"]]}'
        head = f"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:5])
            time.sleep(0.3)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            raw.sendall(body[5:])
            raw.settimeout(20)
            assert raw.recv(4096).startswith(b"HTTP/1.1 200")
        assert process.wait(20) == 0


def test_a_slow_request_is_closed(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.5)
    shelf = Shelf(manner_of)
    shelf.put("columns", str(made["folder"] / "columns.crfield"))
    at = server.bound("127.0.0.1", 0, None)
    port, there = at.getsockname()[1], threading.Event()
    service = Service(shelf, Rules())
    made_server: list[Any] = []
    original = server._Server.__init__

    def noted(self: Any, config: Any) -> None:
        made_server.append(self)
        original(self, config)

    monkeypatch.setattr(server._Server, "__init__", noted)
    thread = threading.Thread(target=lambda: server.run(service, at, lambda address: there.set()))
    thread.start()
    assert there.wait(20)
    try:
        for start in (
            b"",
            b"GET / HT",
            b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 50\r\n\r\n{",
        ):
            with socket.create_connection(("127.0.0.1", port)) as raw:
                raw.settimeout(20)
                raw.sendall(start)
                began, ended = time.monotonic(), False
                while time.monotonic() - began < 10 and not ended:
                    try:
                        if start:
                            raw.sendall(b" ")  # drips do not put it off
                        raw.settimeout(0.1)
                        ended = raw.recv(4096) == b"" or ended
                    except TimeoutError:
                        continue
                    except OSError:
                        ended = True
                assert ended
                assert time.monotonic() - began < 5
        with socket.create_connection(("127.0.0.1", port)) as raw:  # an open connection may rest between requests
            raw.settimeout(20)
            for _ in range(2):
                raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                time.sleep(1.0)
                assert b"200 OK" in raw.recv(4096)
    finally:
        made_server[0].should_exit = True
        thread.join(20)


def test_a_port_in_use_is_said(made: Made, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        told = run("serve", made["folder"] / "columns.crfield", "--port", taken.getsockname()[1])
    assert told.exit_code == 1
    assert "Name another --port" in told.output
