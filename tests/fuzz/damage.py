"""Damage to bytes: what disks, mail and strangers do to a file.

Bits, bytes and runs are changed, lost and doubled; numbers, in binary or as digits, become those at the edge of a
type; texts get signs that readers stumble over. A few changes at a time, so that most of the file still makes sense.
"""

from __future__ import annotations

import random
import re
import struct

WORDS = (0, 1, 2, 127, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
DIGITS = (b"0", b"-1", b"1", b"2147483648", b"9223372036854775808", b"1e308", b"1e999", b"nan", b"inf", b"9" * 5000)
SIGNS = (
    b"\0", b"\n", b"\n\n", b"\r\n", b"\r", b"\t", b" ", b":", b"\\", b"%x[0,0]", b"%x[", b"[", b"]", b"{", b"}", b'"',
    b",", b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\xed\xa0\x80", "\u2028".encode(), "\U0001f600".encode(), b"\x1b[31m",
    b"@weight:", b"__BOS__", b"null", b"true", b"#", b"B", b"U", b"1e400", b"[" * 3000, b"x" * 70_000,
)  # fmt: skip
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE]-?\d+)?")


def damaged(good: bytes, rng: random.Random) -> bytes:
    """The bytes after one to five changes."""
    bad = bytearray(good)
    for _ in range(rng.choice([1, 1, 2, 5])):
        rng.choice(CHANGES)(bad, rng)
    return bytes(bad)


def _place(bad: bytearray, rng: random.Random) -> int:
    return rng.randrange(len(bad)) if bad else 0


def _flip(bad: bytearray, rng: random.Random) -> None:
    if bad:
        bad[_place(bad, rng)] ^= 1 << rng.randrange(8)


def _insert(bad: bytearray, rng: random.Random) -> None:
    place = _place(bad, rng)
    bad[place:place] = rng.randbytes(rng.choice([1, 3, 64]))


def _lose(bad: bytearray, rng: random.Random) -> None:
    place = _place(bad, rng)
    del bad[place : place + rng.choice([1, 3, 64, 1000])]


def _cut(bad: bytearray, rng: random.Random) -> None:
    del bad[_place(bad, rng) :]


def _double(bad: bytearray, rng: random.Random) -> None:
    place = _place(bad, rng)
    bad[place:place] = bad[place : place + rng.choice([1, 16, 200, 5000])]


def _word(bad: bytearray, rng: random.Random) -> None:
    form, size = rng.choice([("<H", 2), ("<I", 4), ("<Q", 8)])
    if len(bad) >= size:
        place = rng.randrange(len(bad) - size + 1)
        place = place // 4 * 4 if rng.random() < 0.7 else place
        value = rng.choice(WORDS) & (256**size - 1)
        bad[place : place + size] = struct.pack(form, value)


def _digits(bad: bytearray, rng: random.Random) -> None:
    found = list(_NUMBER.finditer(bytes(bad[:200_000])))
    if found:
        one = rng.choice(found)
        bad[one.start() : one.end()] = rng.choice(DIGITS)


def _sign(bad: bytearray, rng: random.Random) -> None:
    place = _place(bad, rng)
    bad[place : place + rng.choice([0, 0, 1])] = rng.choice(SIGNS)


CHANGES = (_flip, _flip, _insert, _lose, _cut, _double, _word, _word, _digits, _digits, _sign)
