"""The cases of tests/profiles/cases: what is sent or comes in, and whether a profile should contain it.

A text of a case may hold `${NAME|FILTER|…}`: a made-up secret, the same at every run, written as the filters say. So no
secret stands in the files, and no rule can be written for one.
"""

from __future__ import annotations

import base64
import codecs
import functools
import hashlib
import json
import random
import re
import string
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

from ruamel.yaml import YAML

FOLDER: Final = Path(__file__).resolve().parent / "cases"
_PLACE: Final = re.compile(r"\$\{([^}]+)\}")
UPPER, LOWER, DIGITS = string.ascii_uppercase, string.ascii_lowercase, string.digits
ALNUM: Final = UPPER + LOWER + DIGITS


@dataclass(frozen=True)
class Case:
    """One case; `steps` are done in their order, each a kind and what it takes."""

    id: str
    family: str
    expect: Literal["contained", "benign"]
    steps: tuple[tuple[str, Any], ...]


def load_cases(folder: Path = FOLDER) -> list[Case]:
    """Return every case, with the made-up secrets filled in. Raises ValueError for an id used twice."""
    found = [case for file in sorted(folder.glob("*.yaml")) for case in _read(file)]
    ids = [case.id for case in found]
    if twice := {name for name in ids if ids.count(name) > 1}:
        raise ValueError(f"ids used twice: {sorted(twice)}")
    return found


def families() -> list[str]:
    return [file.stem for file in sorted(FOLDER.glob("*.yaml"))]


def _read(file: Path) -> list[Case]:
    rows = YAML(typ="safe", pure=True).load(file.read_text())
    return [_case(file.stem, row) for row in rows]


def _case(family: str, row: dict[str, Any]) -> Case:
    expect = row.pop("expect")
    if expect not in ("contained", "benign"):
        raise ValueError(f"{row['id']}: expect is {expect!r}")
    given = row["steps"] if "steps" in row else [{k: v for k, v in row.items() if k not in ("id", "why")}]
    steps = tuple((kind, fill(value)) for step in given for kind, value in step.items())
    return Case(row["id"], family, expect, steps)


def fill(value: Any) -> Any:
    """Return a value with its `${…}` filled in, in every text of it."""
    if isinstance(value, str):
        return _PLACE.sub(lambda match: _made(match[1]), value)
    if isinstance(value, list):
        return [fill(each) for each in value]
    if isinstance(value, dict):
        return {fill(key): fill(each) for key, each in value.items()}
    return value


def _made(text: str) -> str:
    name, *filters = text.split("|")
    value = secret(name)
    for each in filters:
        value = FILTERS[each](value)
    return value


def _draw(name: str, alphabet: str, size: int) -> str:
    source = random.Random(name)
    return "".join(source.choice(alphabet) for _ in range(size))


@functools.cache
def secret(name: str) -> str:
    """Return the made-up secret of a kind; `kind.2` is another one of the same kind."""
    kind = name.split(".", maxsplit=1)[0]
    if kind not in SECRETS:
        raise ValueError(f"there is no made-up secret {name!r}; one of {', '.join(SECRETS)}")
    return SECRETS[kind](name)


def _jwt(name: str) -> str:
    parts = [{"alg": "HS256", "typ": "JWT"}, {"sub": _draw(name, DIGITS, 10), "iat": 1700000000}]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, _draw(name, ALNUM + "-_", 43)])


def _luhn(body: str) -> str:
    digits = [int(c) for c in reversed(body)]
    total = sum(sum(divmod(d * 2, 10)) if i % 2 == 0 else d for i, d in enumerate(digits))
    return body + str(-total % 10)


def _iban(name: str) -> str:
    bban = _draw(name, DIGITS, 18)
    check = 98 - int(bban + "1314" + "00") % 97  # DE
    return f"DE{check:02}{bban}"


def base58check(payload: bytes) -> str:
    """Return bytes as Bitcoin writes addresses and keys."""
    whole = payload + hashlib.sha256(hashlib.sha256(payload).digest()).digest()[:4]
    alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    number, text = int.from_bytes(whole), ""
    while number:
        number, rest = divmod(number, 58)
        text = alphabet[rest] + text
    return "1" * (len(whole) - len(whole.lstrip(b"\0"))) + text


def _bech32(name: str) -> str:
    charset, hrp = "qpzry9x8gf2tvdw0s3jn54khce6mua7l", "bc"
    number = int.from_bytes(_bytes(name, 20))
    data = [0, *((number >> shift) & 31 for shift in range(155, -1, -5))]

    def polymod(values: list[int]) -> int:
        check = 1
        for value in values:
            top = check >> 25
            check = (check & 0x1FFFFFF) << 5 ^ value
            for bit, generator in enumerate((0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)):
                check ^= generator if top >> bit & 1 else 0
        return check

    expanded = [ord(c) >> 5 for c in hrp] + [0] + [ord(c) & 31 for c in hrp]
    check = polymod([*expanded, *data, 0, 0, 0, 0, 0, 0]) ^ 1
    return f"{hrp}1" + "".join(charset[d] for d in [*data, *((check >> 5 * (5 - i)) & 31 for i in range(6))])


def _bytes(name: str, size: int) -> bytes:
    return random.Random(name).randbytes(size)


def seed_phrase(name: str, words: int = 12) -> str:
    """Return a phrase of the BIP-39 list with the right checksum."""
    listed = (Path(__file__).resolve().parents[2] / "proxy" / "redact" / "bip39_english.txt").read_text().split()
    entropy = _bytes(name, words * 4 // 3)
    bits = f"{int.from_bytes(entropy):0{len(entropy) * 8}b}"
    bits += f"{hashlib.sha256(entropy).digest()[0]:08b}"[: words // 3]
    return " ".join(listed[int(bits[i : i + 11], 2)] for i in range(0, len(bits), 11))


SECRETS: Final[dict[str, Callable[[str], str]]] = {
    "aws": lambda name: "AKIA" + _draw(name, UPPER + "234567", 16),
    "awssecret": lambda name: _draw(name, ALNUM + "/+", 40),
    "github": lambda name: "ghp_" + _draw(name, ALNUM, 36),
    "openai": lambda name: "sk-proj-" + _draw(name, ALNUM, 48),
    "stripe": lambda name: "sk_live_" + _draw(name, ALNUM, 24),
    "slack": lambda name: f"xoxb-{_draw(name, DIGITS, 12)}-{_draw(name + 'b', ALNUM, 24)}",
    "sendgrid": lambda name: f"SG.{_draw(name, ALNUM, 22)}.{_draw(name + 'b', ALNUM, 43)}",
    "jwt": _jwt,
    "password": lambda name: _draw(name, LOWER, 6) + _draw(name, UPPER, 3) + _draw(name, DIGITS, 3) + "!",
    "token": lambda name: _draw(name, ALNUM, 40),
    "hextoken": lambda name: _draw(name, "0123456789abcdef", 40),
    "pem": lambda name: (
        "-----BEGIN PRIVATE KEY-----\n"
        + "\n".join(_draw(f"{name}{i}", ALNUM + "+/", 64) for i in range(6))
        + "\n-----END PRIVATE KEY-----"
    ),
    "card": lambda name: _luhn("4" + _draw(name, DIGITS, 14)),
    "iban": _iban,
    "ssn": lambda name: f"{random.Random(name).randint(101, 665)}-{_draw(name, '123456789', 2)}-4821",
    "btc": lambda name: base58check(b"\0" + _bytes(name, 20)),
    "btcsegwit": _bech32,
    "wif": lambda name: base58check(b"\x80" + _bytes(name, 32) + b"\x01"),
    "eth": lambda name: "0x" + _draw(name, "0123456789abcdef", 40),
    "ethkey": lambda name: "0x" + _draw(name, "0123456789abcdef", 64),
    "seed": seed_phrase,
    "seed24": lambda name: seed_phrase(name, 24),
    "uuid": lambda name: "-".join(_draw(f"{name}{i}", "0123456789abcdef", n) for i, n in enumerate((8, 4, 4, 4, 12))),
    "sha1": lambda name: hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest(),
    "sha256": lambda name: hashlib.sha256(name.encode()).hexdigest(),
    "image": lambda name: base64.b64encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + _bytes(name, 600)).decode(),
    "note": lambda name: f"patient {_draw(name, LOWER, 7)} was admitted on the 4th with a suspected fracture",
}


def _cut(size: int, mark: str) -> Callable[[str], str]:
    return lambda text: mark.join(text[i : i + size] for i in range(0, len(text), size))


def _encoded(encode: Callable[[bytes], bytes]) -> Callable[[str], str]:
    return lambda text: encode(text.encode()).decode()


FILTERS: Final[dict[str, Callable[[str], str]]] = {
    "base64": _encoded(base64.b64encode),
    "base64url": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "base32": lambda text: base64.b32encode(text.encode()).decode().rstrip("="),
    "hex": lambda text: text.encode().hex(),
    "percent": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "quoted": lambda text: quote(text, safe=""),
    "entities": lambda text: "".join(f"&#{ord(c)};" for c in text),
    "hexentities": lambda text: "".join(f"&#x{ord(c):x};" for c in text),
    "unicode": lambda text: "".join(f"\\u{ord(c):04x}" for c in text),
    "octal": lambda text: "".join(f"\\{ord(c):03o}" for c in text),
    "printable": lambda text: "".join(f"={byte:02X}" for byte in text.encode()),
    "zerowidth": "\u200b".join,
    "reverse": lambda text: text[::-1],
    "rot13": lambda text: codecs.encode(text, "rot13"),
    "lower": str.lower,
    "upper": str.upper,
    "first": lambda text: text[: len(text) // 2],
    "second": lambda text: text[len(text) // 2 :],
    "dashes": _cut(4, "-"),
    "dots": _cut(4, "."),
    "spaces": _cut(4, " "),
    "pairs": _cut(2, "-"),
    "spaced": _cut(1, " "),
    "labels": _cut(30, "."),
    "fullwidth": lambda text: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text),
}
