"""The page of a replay: a template of this package with the data of one game inside.

The template ``replay.html`` lies beside this file. It has two holes, the title and the data, and asks nothing of the
network (its policy forbids it). Data are one JSON object; long arrays in it are little-endian numbers as base64:
positions as 16-bit multiples of ``unit``, labels as 16-bit codes, marginals as bytes, 255 being certainty.
"""

from __future__ import annotations

import json
from base64 import b64encode
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from crfield.report.replay import Replay

_LARGEST = 32_000


def replay_page(replay: Replay) -> str:
    """The replay as one self-contained HTML page.

    >>> from crfield.report.replay import Replay
    >>> import crfield
    >>> page = replay_page(Replay.of(crfield.make_soccer(0.05, n_players=2), title="<two> & two"))
    >>> "&lt;two&gt; &amp; two</title>" in page, page.count("{{")
    (True, 0)
    """
    # A tag or a comment in the data would end its element.
    data = json.dumps(replay_data(replay), ensure_ascii=True).replace("<", "\\u003c")
    return _template().replace("{{title}}", escape(replay.title)).replace("{{data}}", data)


def replay_data(replay: Replay) -> dict[str, object]:
    """What the page's script reads.

    >>> from crfield.report.replay import Replay
    >>> import crfield
    >>> data = replay_data(Replay.of(crfield.make_tag(0.05)))
    >>> data["classes"], data["points_at"], data["predicted"], data["unit"]
    (('0', '1', '2'), (0, 1, 2), None, 1.0)
    """
    unit = max(1.0, float(np.abs(replay.positions).max(initial=0.0)) / _LARGEST)
    return {
        "title": replay.title,
        "rate": replay.rate,
        "every": replay.every,
        "field": replay.field,
        "agents": replay.agents,
        "groups": replay.groups,
        "sizes": replay.sizes,
        "classes": replay.classes,
        "points_at": replay.points_at,
        "unit": unit,
        "positions": _packed(np.rint(replay.positions / unit), "<i2"),
        "labels": _packed(replay.labels, "<i2"),
        "predicted": None if replay.predicted is None else _packed(replay.predicted, "<i2"),
        "marginals": None if replay.marginals is None else _packed(np.rint(replay.marginals * 255), "u1"),
    }


def _packed(values: np.ndarray, kind: str) -> str:
    return b64encode(np.ascontiguousarray(values).astype(kind).tobytes()).decode("ascii")


@cache
def _template() -> str:
    return files("crfield.report").joinpath("replay.html").read_text(encoding="utf-8")
