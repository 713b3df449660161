"""Cases that play with how the message is written: character sets, bad UTF-8, numbers, ids, nesting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.bypass.shot import Case, post


def _encoded(name: str, encoding: str, charset: str | None, bom: bytes = b"") -> Case:
    content_type = "application/json" + (f"; charset={charset}" if charset else "")
    return Case(
        name,
        f"The message in {encoding}{' with a BOM' if bom else ''}, charset {charset or 'not said'}",
        build=lambda shot: shot.retyped(content_type, bom + shot.text().encode(encoding)),
    )


def _encodings() -> Iterator[Case]:
    yield _encoded("utf8-bom", "utf-8", None, b"\xef\xbb\xbf")
    yield _encoded("utf8-bom-twice", "utf-8", None, b"\xef\xbb\xbf" * 2)
    yield _encoded("utf8-bom-charset", "utf-8", "utf-8", b"\xef\xbb\xbf")
    for width, marks in (
        ("16", (b"\xff\xfe", b"\xfe\xff")),
        ("32", (b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")),
    ):
        for order, mark in zip(("le", "be"), marks, strict=True):
            encoding = f"utf-{width}-{order}"
            yield _encoded(f"utf{width}{order}", encoding, None)
            yield _encoded(f"utf{width}{order}-bom", encoding, None, mark)
            yield _encoded(f"utf{width}{order}-charset", encoding, encoding)
            yield _encoded(f"utf{width}{order}-bom-charset", encoding, f"utf-{width}", mark)
    yield Case(
        "utf7-charset",
        "The message in UTF-7 with the charset said",
        build=lambda shot: shot.retyped("application/json; charset=utf-7", shot.text().replace("{", "+AHs-").encode()),
    )
    yield Case(
        "utf7-silent",
        "The message in UTF-7 without a word",
        build=lambda shot: shot.request(shot.text().replace("{", "+AHs-").replace("tools/call", "tools+AC8-call")),
        toothless="nothing reads UTF-7 unasked",
    )
    yield Case(
        "charset-lie",
        "Plain UTF-8 called UTF-16",
        build=lambda shot: shot.retyped("application/json; charset=utf-16le"),
    )
    yield Case(
        "charset-ebcdic",
        "The message in EBCDIC with its charset",
        build=lambda shot: shot.retyped("application/json; charset=cp037", shot.text().encode("cp037")),
    )
    for spelling in ("utf-8", '"UTF-8"', "utf8"):
        yield Case(
            f"charset-{spelling.strip(chr(34)).lower()}{'-quoted' if '"' in spelling else ''}",
            f"charset={spelling}",
            build=lambda shot, s=spelling: shot.retyped(f"application/json; charset={s}"),  # type: ignore[misc]
            benign="either" if spelling == "utf8" else "runs",
            answer="any" if spelling == "utf8" else "denial",
        )


def _overlong(text: str) -> bytes:
    """Write ASCII text in two bytes per character, as UTF-8 forbids."""
    return b"".join(bytes([0xC0 | ord(char) >> 6, 0x80 | ord(char) & 0x3F]) for char in text)


def _bad_utf8() -> Iterator[Case]:
    def with_bytes(name: str, tries: str, old: bytes, new: bytes) -> Case:
        return Case(
            name,
            tries,
            build=lambda shot: shot.request(shot.text().encode().replace(old, new, 1)),
        )

    yield with_bytes("utf8-invalid", "A stray 0xFF in a string", b'"jsonrpc"', b'"x":"\xff","jsonrpc"')
    yield with_bytes("utf8-truncated", "A cut-off sequence in a string", b'"jsonrpc"', b'"x":"\xe2\x82","jsonrpc"')
    yield with_bytes("utf8-surrogate-bytes", "A surrogate in UTF-8", b'"jsonrpc"', b'"x":"\xed\xa0\x80","jsonrpc"')
    yield with_bytes("utf8-too-high", "A character past U+10FFFF", b'"jsonrpc"', b'"x":"\xf5\x80\x80\x80","jsonrpc"')
    yield with_bytes("overlong-slash", "tools/call with an overlong slash", b"tools/call", b"tools\xc0\xafcall")
    yield Case(
        "overlong-name",
        "The tool's name in overlong UTF-8",
        build=lambda shot: shot.request(
            shot.text(params=shot.params(name='"@@"')).encode().replace(b"@@", _overlong(shot.tool))
        ),
    )


def _numbers() -> Iterator[Case]:
    def argument(name: str, tries: str, value: str, **rest: Any) -> Case:
        return post(name, tries, lambda s: s.text(params=s.params(args=f'{s.args[:-1]},"x":{value}}}')), **rest)

    yield argument("nan", "NaN as an argument", "NaN")
    yield argument("infinity", "Infinity as an argument", "Infinity")
    yield argument("minus-infinity", "-Infinity as an argument", "-Infinity")
    yield argument("overflow", "A number past every double", "1e999")
    yield argument("int-5000", "A 5000-digit integer", "9" * 5000)
    yield argument("int-19", "A 19-digit integer", "9" * 18, benign="runs", answer="denial")
    yield argument("leading-zero", "A number with a leading zero", "007")
    yield argument("hex", "A hexadecimal number", "0x10")
    yield argument("nesting-50", "50 arrays in each other", "[" * 50 + "]" * 50, benign="runs", answer="denial")
    for depth in (220, 1_000, 5_000, 100_000):
        yield argument(f"nesting-{depth}", f"{depth} arrays in each other", "[" * depth + "]" * depth)
    yield argument("nesting-objects", "2000 objects in each other", '{"x":' * 2000 + "1" + "}" * 2000)
    for name, value in {
        "float": "1.0", "exponent": "1e0", "fraction": "1.5", "30-digits": "9" * 30, "null": "null", "true": "true",
        "object": '{"x":1}', "array": "[1]", "empty": '""', "minus-zero": "-0", "nan": "NaN",
    }.items():  # fmt: skip
        yield post(f"id-{name}", f"id: {value}", lambda s, v=value: s.text(id=f'"id":{v},'))  # type: ignore[misc]
    for name, value in {"string": '"abc"', "number-string": '"1"', "negative": "-5", "zero": "0"}.items():
        yield post(
            f"id-{name}",
            f"id: {value}",
            lambda s, v=value: s.text(id=f'"id":{v},'),  # type: ignore[misc]
            benign="runs",
            answer="denial",
        )


CASES: tuple[Case, ...] = (*_encodings(), *_bad_utf8(), *_numbers())
