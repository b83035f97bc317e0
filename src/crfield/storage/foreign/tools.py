"""What a file looks like, by its first bytes.

Whoever hands over the wrong file is helped more by "this is a CRFsuite model" than by "bad magic". The list
holds what is likely to lie beside a model: other tools' models, archives, pickles, texts, failed downloads.
Models of other chain CRFs are more than named: `chain_tool` tells whose they are, and `crfield.load` reads them.
"""

from __future__ import annotations

_STARTS: tuple[tuple[bytes, str], ...] = (
    (b"lCRF", "a model of CRFsuite, which crfield.load and `crfield convert` read"),
    (b"#mdl#", "a model of Wapiti, which crfield.load and `crfield convert` read"),
    (b"version: 100", "a text model of CRF++, which crfield.load and `crfield convert` read"),
    (b"version https://git-lfs", "a Git LFS pointer: fetch the real file with `git lfs pull`"),
    (b"PK\x03\x04", "a zip archive, perhaps a NumPy .npz"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"\x93NUMPY", "a NumPy .npy array"),
    (b"\x1f\x8b", "gzip data: unpack it first"),
    (b"BZh", "bzip2 data: unpack it first"),
    (b"\xfd7zXZ\x00", "xz data: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "zstandard data: unpack it first"),
    (b"\x89HDF\r\n", "an HDF5 file"),
    (b"\x89PNG", "a PNG picture"),
    (b"\x7fELF", "a program or shared library"),
    (b"%PDF", "a PDF document"),
    (b"SQLite format 3", "an SQLite database"),
    (b"PAR1", "a Parquet table"),
)
_TOOLS = ((b"lCRF", "crfsuite"), (b"#mdl#", "wapiti"), (b"version: 1", "crfpp"))
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_NEWEST_PICKLE = 5


def looks_like(start: bytes) -> str:
    r"""A noun phrase for the file that starts with these bytes.

    >>> looks_like(b"lCRF\x10\x00")
    'a model of CRFsuite, which crfield.load and `crfield convert` read'
    >>> looks_like(b"Confidence NN B-NP")
    "a text file that starts with 'Confidence NN B-NP'"
    """
    for magic, name in _STARTS:
        if start.startswith(magic):
            return name
    if start[:1] == b"\x80" and len(start) > 1 and 2 <= start[1] <= _NEWEST_PICKLE:
        return "a pickle (as joblib.dump writes): load it with joblib.load if you trust where it comes from"
    if start[:2] in _ZLIB:
        return "zlib data, perhaps a compressed joblib dump"
    text = start.decode("utf-8", errors="ignore")
    if text.lstrip().lower().startswith(("<!doctype html", "<html")):
        return "a web page, so a download may have failed"
    # The last letter may be cut, so up to three bytes may be missing.
    if text and len(text.encode()) >= len(start) - 3 and all(c.isprintable() or c in "\t\r\n" for c in text):
        return f"a text file that starts with {text.splitlines()[0][:30] if text.strip() else text!r}"
    return f"an unknown kind of data that starts with {start[:8].hex(' ')}"


def chain_tool(start: bytes) -> str | None:
    r"""Which tool's model of a chain starts with these bytes: "crfsuite", "crfpp", "wapiti", or None.

    >>> chain_tool(b"lCRF\x10\x00"), chain_tool(b"\x89CRF")
    ('crfsuite', None)
    """
    return next((tool for magic, tool in _TOOLS if start.startswith(magic)), None)
