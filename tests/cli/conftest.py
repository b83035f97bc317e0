"""Files for the tests of the command line."""

from __future__ import annotations

import pytest

from tests.cases.command_line import Files, make_files


@pytest.fixture(scope="package")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Data and models for the command line, made once."""
    return make_files(tmp_path_factory.mktemp("cli"))
