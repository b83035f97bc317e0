"""An application over small models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("httpx2")

from starlette.testclient import TestClient

from crfield.cli.serving import manner_of
from crfield.serve.app import Service
from crfield.serve.gate import Rules
from crfield.serve.models import Shelf
from tests.serve.served_models import make_models


@pytest.fixture(scope="package")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Data and models, and the folder of the files."""
    folder = tmp_path_factory.mktemp("served")
    return {**make_models(folder), "folder": folder}


def shelf_of(folder: Path, *names: str) -> Shelf:
    """Models of a folder on a shelf."""
    shelf = Shelf(manner_of)
    for name in names:
        shelf.put(name, str(folder / f"{name}.crfield"))
    return shelf


def client_of(service: Service) -> TestClient:
    """A client of an application, as a program on this machine is."""
    return TestClient(service.app(), base_url="http://127.0.0.1", raise_server_exceptions=False)


@pytest.fixture(scope="package")
def client(made: dict[str, Any]) -> Iterator[TestClient]:
    """All models behind one application."""
    service = Service(shelf_of(made["folder"], "columns", "records", "numbers", "hostile"), Rules(most_bytes=100_000))
    with client_of(service) as found:
        yield found
