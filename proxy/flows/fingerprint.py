"""Keyed fingerprints of text: runs of characters, and single values. Pure.

A run is 16 bytes of a text in its plainest form: folded, in lower case, nothing but letters and digits. Its fingerprint
is half of its AES block under a secret key: without the key nobody can test a guess, and with it nobody can read
the text back. Of what comes in, every eighth run is kept; of what goes out, every run is looked up. So each piece
of `least_run(n)` bytes holds n kept runs wherever it was cut, at half the memory that winnowing both sides takes.

A letter and the one 13 places on have the same fingerprint: text in ROT13 is found without being looked up twice. Two
texts whose letters differ nowhere else do not occur by chance.
"""

from __future__ import annotations

import hashlib
import re
import threading
from array import array
from typing import TYPE_CHECKING, Final, NamedTuple

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from proxy.redact.unicode_fold import FOLD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cryptography.hazmat.primitives.ciphers import CipherContext

GRAM: Final = 16  # bytes of a run: a block of AES
STRIDE: Final = 8
MAX_KEPT: Final = 8192  # runs of one result: 64 KiB of its letters and digits
KEY_BYTES: Final = 32
MAX_KINDS: Final = 8  # the lowest bits of a value's second fingerprint say of which kind it is
_HALF: Final = GRAM // 2
_DROPPED: Final = bytes(code for code in range(128) if not chr(code).isalnum())
_PLAIN: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]+")
_HALVED: Final = bytes.maketrans(b"nopqrstuvwxyz", b"abcdefghijklm")
_BETWEEN: Final = b"\1"  # stands in no normalised text, so no run over it is one that was kept


class Kept(NamedTuple):
    """What is kept of a text: fingerprints of runs, of values as pairs, and whether they cover all of it."""

    runs: frozenset[int]
    values: frozenset[tuple[int, int]]
    complete: bool = True


def least_run(count: int) -> int:
    """Return how many bytes of normalised text surely hold `count` kept runs."""
    return GRAM + STRIDE * count - 1


def runs_in(length: int) -> int:
    """Return how many kept runs are surely in so many bytes of normalised text; one at least."""
    return max(1, (length - GRAM + 1) // STRIDE)


def normalise(text: str) -> bytes:
    """Return the letters and digits of a text, folded to plain ones, in lower case, as UTF-8."""
    if text.isascii():
        return text.lower().encode().translate(None, _DROPPED)
    # The case first: capitals of other scripts pass for Latin letters that their small ones do not pass for.
    # And only what is not ASCII: a table of characters is slow, and most of a text needs none.
    folded = _BEYOND_ASCII.sub(lambda match: match.group().translate(FOLD), text.casefold())
    return folded.casefold().encode("utf-8", "ignore").translate(None, _DROPPED)


def disguises(plain: bytes) -> Iterator[bytes]:
    """Yield a normalised text as it is, and backwards."""
    yield plain
    yield plain[::-1] if plain.isascii() else plain.decode("utf-8", "ignore")[::-1].encode()


class Fingerprinter:
    """Makes fingerprints under one key. Threads may share it."""

    def __init__(self, key: bytes) -> None:
        """Raise ValueError where the key has not 32 bytes."""
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key of fingerprints has {KEY_BYTES} bytes, not {len(key)}")
        # ECB is what is wanted: the same run has the same fingerprint wherever it stands.
        # The name changes with the form of fingerprints: those of another form count as made with another key.
        derived = hashlib.blake2b(key, person=b"interlock flows2", digest_size=32).digest()
        self._cipher = Cipher(algorithms.AES(derived), modes.ECB())  # noqa: S305
        self._local = threading.local()
        # Runs of one or two characters over and over say nothing, and stand in many texts.
        dull = b"".join(bytes((one, other)) * _HALF for one in _PLAIN for other in _PLAIN)
        self._dull = frozenset(self._encrypt(dull.translate(_HALVED)))
        self.key_id = self._encrypt(bytes(GRAM))[0]

    def keep(self, plain: bytes, values: Iterable[tuple[int, bytes]] = ()) -> Kept:
        """Return what to keep of a normalised text, and of the values in it: the number of a kind, and the value."""
        runs = self._encrypt(b"".join(_aligned(plain.translate(_HALVED), (0, STRIDE))))
        # Past the bound every n-th: all of a long text is covered, if less closely.
        step = -(-len(runs) // MAX_KEPT)
        kept = frozenset(runs[::step] if step > 1 else runs) - self._dull
        return Kept(kept, self._pairs(list(values)), step <= 1)

    def every(self, plains: Iterable[bytes], words: Iterable[bytes] = ()) -> list[int]:
        """Return the fingerprints of every run of 16 and of 8 bytes in normalised texts, and of short words."""
        blocks: list[bytes] = [word.translate(_HALVED).ljust(GRAM, b"\0") for word in words if len(word) < _HALF]
        # As one text: what is done for each offset is done once.
        plain = _BETWEEN.join(plains).translate(_HALVED)
        blocks.extend(_aligned(plain, range(GRAM)))
        blocks.append(_halves(plain))
        return self._encrypt(b"".join(blocks))

    def _pairs(self, values: Sequence[tuple[int, bytes]]) -> frozenset[tuple[int, int]]:
        prints = self._encrypt(b"".join(end for _, value in values for end in _ends(value)).translate(_HALVED))
        kinds = [kind for kind, _ in values]
        lasts = [last & -MAX_KINDS | kind for last, kind in zip(prints[1::2], kinds, strict=True)]
        return frozenset(zip(prints[::2], lasts, strict=True))

    def _encrypt(self, blocks: bytes) -> list[int]:
        """Return the first half of each encrypted block, as a number."""
        encryptor: CipherContext | None = getattr(self._local, "encryptor", None)
        if encryptor is None:
            # One for each thread: making one takes longer than fingerprinting a small call.
            encryptor = self._local.encryptor = self._cipher.encryptor()
        return memoryview(encryptor.update(blocks)).cast("Q")[::2].tolist() if blocks else []


def _aligned(plain: bytes, offsets: Iterable[int]) -> Iterator[bytes]:
    """Yield the text from each offset on, in whole blocks."""
    size = len(plain)
    for offset in offsets:
        if (whole := (size - offset) & -GRAM) <= 0:
            return
        yield plain[offset : offset + whole]


def _halves(plain: bytes) -> bytes:
    """Return every run of 8 bytes as a block of its own, the rest of which is zero."""
    size = len(plain)
    runs = b"".join([plain[offset : offset + (size - offset & -_HALF)] for offset in range(min(_HALF, size))])
    blocks = array("Q", bytes(2 * len(runs)))
    blocks[::2] = array("Q", runs)
    return blocks.tobytes()


def _ends(value: bytes) -> tuple[bytes, bytes]:
    """Return the two blocks by which a value is recognised wherever it stands: its first and its last bytes."""
    if len(value) > GRAM:
        return value[:GRAM], value[-GRAM:]
    if len(value) >= _HALF:
        return value[:_HALF].ljust(GRAM, b"\0"), value[-_HALF:].ljust(GRAM, b"\0")
    return (value.ljust(GRAM, b"\0"),) * 2
