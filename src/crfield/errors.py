"""Every error and warning that crfield raises on purpose, in one tree.

    CrfieldError
    ├── InputError (ValueError)          what the user handed in does not fit
    │   ├── ShapeError                   lengths, widths, dimensions
    │   ├── LabelError                   a label that cannot be used here
    │   ├── WidthError                   a graph too wide for exact inference in the memory allowed
    │   ├── FeatureError                 a feature value that cannot be used (NaN, wrong type, …)
    │   ├── TemplateError                a template line that cannot be read or applied
    │   ├── ParameterError (TypeError)   an estimator has no parameter of that name
    │   └── FormatError                  a text file that cannot be read; knows file and line
    ├── ModelFileError (ValueError)      a model file that is damaged, foreign or newer
    ├── ClusterError (RuntimeError)      workers of a cluster are lost, or do not fit together
    └── NotFittedError (ValueError, AttributeError)   a model is asked before it was fitted
    CrfieldWarning (UserWarning)
    ├── ConvergenceWarning               training stopped before its tolerance was met
    ├── SpeedWarning                     right, but slower than it need be
    ├── ClusterWarning                   a worker of a cluster was lost, or does not answer
    ├── RenamedWarning (FutureWarning)   a name that was replaced; the message says the new one
    └── DataWarning                      usable data that is probably not what was intended

A message says what was expected, what came, where, and what to do about it. Nothing in the library uses
``assert`` for a user's mistake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` with the nearest of the known names, or nothing where none is near.

    >>> did_you_mean("lbfsg", ["lbfgs", "sgd"]), did_you_mean("newton", ["lbfgs", "sgd"])
    (" Did you mean 'lbfgs'?", '')
    """
    from difflib import get_close_matches

    near = get_close_matches(str(word), list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


class CrfieldError(Exception):
    """Root of all errors raised by crfield."""


class InputError(CrfieldError, ValueError):
    """The data or an option handed in cannot be used."""


class ShapeError(InputError):
    """Lengths, widths or dimensions do not fit together."""


class LabelError(InputError):
    """A label cannot be used here."""


class WidthError(InputError):
    """A graph is too wide for exact inference in the memory allowed."""


class FeatureError(InputError):
    """A feature value cannot be used."""


class TemplateError(InputError):
    """A feature template cannot be read, or does not fit the columns it is applied to."""


class ParameterError(InputError, TypeError):
    """An estimator has no parameter of that name: a TypeError of its constructor, a ValueError of ``set_params``."""


class FormatError(InputError):
    """A text file cannot be read.

    >>> str(FormatError("expected 3 columns, got 2", file="train.txt", line=7))
    'train.txt, line 7: expected 3 columns, got 2'
    """

    def __init__(self, message: str, *, file: str | None = None, line: int | None = None) -> None:
        self.file, self.line = file, line
        where = ", ".join(filter(None, [file, f"line {line}" if line is not None else None]))
        super().__init__(f"{where}: {message}" if where else message)


class ModelFileError(CrfieldError, ValueError):
    """A model file is damaged, cut, foreign, or written by a newer version."""


class ClusterError(CrfieldError, RuntimeError):
    """Workers of a cluster were lost again and again, or do not fit together."""


class NotFittedError(CrfieldError, ValueError, AttributeError):
    """A model was asked for an answer before ``fit``."""


class CrfieldWarning(UserWarning):
    """Root of all warnings given by crfield."""


class ConvergenceWarning(CrfieldWarning):
    """Training stopped before its tolerance was met."""


class SpeedWarning(CrfieldWarning):
    """Results are right, but computed more slowly than necessary."""


class ClusterWarning(CrfieldWarning):
    """A worker of a cluster was lost and replaced, or has not answered for long."""


class RenamedWarning(CrfieldWarning, FutureWarning):
    """A name that was replaced and will end; the message says the new one."""


class DataWarning(CrfieldWarning):
    """Usable data that is probably not what was intended."""


def warn_renamed(old: str, new: str, *, gone: str, stacklevel: int = 3) -> None:
    """Say that ``old`` is now ``new``, and the version in which the old name ends; at the caller's caller.

    The promise behind it is in docs/compatibility.md.

    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_renamed("crfield.Chain", "crfield.ChainCRF", gone="0.4")
    >>> print(caught[0].message)
    crfield.Chain is now crfield.ChainCRF; the old name ends with crfield 0.4.
    """
    import warnings

    warnings.warn(
        f"{old} is now {new}; the old name ends with crfield {gone}.", RenamedWarning, stacklevel=stacklevel
    )
