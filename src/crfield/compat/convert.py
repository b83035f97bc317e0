"""Model conversion: from one tool's file to another's.

Reading is `crfield.load`: our own files, models of CRFsuite, text models of CRF++, models of Wapiti. Writing knows
three forms: ``crfield``, which holds everything; ``crfsuite``, for models that CRFsuite can hold, to the last bit the
same scores; ``json``, a list of all weights by name, for other programs to read.
"""

from __future__ import annotations

import json
import os
from typing import Any

from crfield.compat.crfsuite_model import to_crfsuite
from crfield.errors import InputError
from crfield.estimators.base.load import load
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.explain.listing import chain_listing
from crfield.storage.files import same_file, write_text
from crfield.storage.foreign import crfsuite as crfsuite_model

FORMS = ("crfield", "crfsuite", "json")
_SUFFIXES = {".crfsuite": "crfsuite", ".json": "json"}


def form_of(path: Any) -> str:
    """The form that the name of a file asks for.

    >>> form_of("ner.crfsuite"), form_of("ner.model")
    ('crfsuite', 'crfield')
    """
    return _SUFFIXES.get(os.path.splitext(os.fspath(path))[1].lower(), "crfield")


def convert_model(
    source: Any,
    target: Any,
    *,
    to: str | None = None,
    bias: str | None = None,
    start: str | None = None,
    end: str | None = None,
) -> ChainCRF:
    """Convert a model file to the form ``to``; without one, the name of ``target`` decides. Returns the model.

    ``bias``, ``start`` and ``end`` are for CRFsuite: see `write_crfsuite_model`.

    >>> import os, tempfile
    >>> model = ChainCRF(intercept=False, boundaries=False).fit([[["a"], ["b"]]], [["N", "V"]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     paths = [os.path.join(folder, name) for name in ("a.crfsuite", "b.crfield")]
    ...     write_crfsuite_model(model, paths[0])
    ...     convert_model(*paths).predict([[["b"]]])[0].tolist()
    ['V']
    """
    if to is not None and to not in FORMS:
        raise InputError(f"a model is written as one of {', '.join(FORMS)}, got {to!r}.")
    if all(isinstance(path, str | os.PathLike) for path in (source, target)) and same_file(source, target):
        raise InputError(f"{os.fspath(target)} is the model that is read, and would be replaced. Name another file.")
    model = load(source)
    if not isinstance(model, ChainCRF):
        raise InputError(
            f"only chains with named features can be converted; {os.fspath(source)} holds a {type(model).__name__}."
        )
    write_model(model, target, to=form_of(target) if to is None else to, bias=bias, start=start, end=end)
    return model


def write_model(
    model: ChainCRF,
    target: Any,
    *,
    to: str,
    bias: str | None = None,
    start: str | None = None,
    end: str | None = None,
) -> None:
    """Write a chain in one of the `FORMS`."""
    if to == "crfield":
        model.save(target)
    elif to == "crfsuite":
        write_crfsuite_model(model, target, bias=bias, start=start, end=end)
    else:
        write_text(target, json.dumps(chain_listing(model), indent=1, ensure_ascii=False) + "\n")


def write_crfsuite_model(
    model: ChainCRF, path: Any, *, bias: str | None = None, start: str | None = None, end: str | None = None
) -> None:
    """Write a chain as a model of CRFsuite, for ``crfsuite tag`` and python-crfsuite; its scores are the same.

    CRFsuite has no intercepts and no boundary scores. Train without, or name the attributes that carry them: ``bias``
    must then be on every step of what CRFsuite tags, ``start`` on the first and ``end`` on the last. InputError says
    what else it cannot hold.

    >>> import os, tempfile
    >>> model = ChainCRF(intercept=False, boundaries=False).fit([[{"w": "a"}, {"w": "b"}]], [["N", "V"]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_crfsuite_model(model, os.path.join(folder, "tags.crfsuite"))
    ...     load(os.path.join(folder, "tags.crfsuite")).predict([[{"w": "b"}]])[0].tolist()
    ['V']
    """
    crfsuite_model.write_crfsuite_model(path, to_crfsuite(model, bias=bias, start=start, end=end))
