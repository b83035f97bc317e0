"""Names that have a new one: one form of warning for all of them; the promise is in docs/compatibility.md."""

from __future__ import annotations

import warnings

from crfield.errors import RenamedWarning


def warn_renamed(old: str, new: str, *, gone: str, stacklevel: int = 3) -> None:
    """Say that ``old`` is now ``new``, and the version in which the old name ends; at the caller's caller.

    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_renamed("crfield.Chain", "crfield.ChainCRF", gone="0.4")
    >>> print(caught[0].message)
    crfield.Chain is now crfield.ChainCRF; the old name ends with crfield 0.4.
    """
    warnings.warn(
        f"{old} is now {new}; the old name ends with crfield {gone}.", RenamedWarning, stacklevel=stacklevel
    )
