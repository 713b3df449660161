"""Check a receipt of `interlock audit receipt`, with nothing but the standard library.

    python verify_receipt.py receipt.json --public-key audit.pem

Exit code 0: a key that you trust signed the tree that holds these events. 1: the receipt proves nothing. 3: it is
whole, but its key is taken from the receipt itself, since you gave none: compare the printed key id with one that you
trust.

What is checked: each event's text leads by its proof (RFC 6962) to the root of its tree; the root's signature (Ed25519,
RFC 8032) is that of the key; the number, the writer and the call in the text are those that the receipt names.
"""

import argparse
import base64
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

Point = tuple[int, int, int, int]

PRIME = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
CURVE_D = -121665 * pow(121666, PRIME - 2, PRIME) % PRIME
ROOT_OF_MINUS_1 = pow(2, (PRIME - 1) // 4, PRIME)
# A public key in PEM is these bytes and 32 more.
PEM_HEAD = bytes.fromhex("302a300506032b6570032100")


class BadReceiptError(Exception):
    """The receipt proves nothing; the message says why."""


def recover_x(y: int, sign: int) -> int:
    """Return the x of a point on the curve. Raises BadReceiptError where there is none."""
    square = (y * y - 1) * pow(CURVE_D * y * y + 1, PRIME - 2, PRIME) % PRIME
    x = pow(square, (PRIME + 3) // 8, PRIME)
    if (x * x - square) % PRIME:
        x = x * ROOT_OF_MINUS_1 % PRIME
    if (x * x - square) % PRIME or (x == 0 and sign):
        raise BadReceiptError("a key or a signature is no point of the curve")
    return PRIME - x if x % 2 != sign else x


def decode_point(data: bytes) -> Point:
    """Return a point in extended coordinates."""
    number = int.from_bytes(data, "little")
    y, sign = number & (1 << 255) - 1, number >> 255
    if y >= PRIME:
        raise BadReceiptError("a key or a signature is no point of the curve")
    x = recover_x(y, sign)
    return x, y, 1, x * y % PRIME


def add_points(one: Point, other: Point) -> Point:
    """Add two points."""
    a = (one[1] - one[0]) * (other[1] - other[0]) % PRIME
    b = (one[1] + one[0]) * (other[1] + other[0]) % PRIME
    c = 2 * one[3] * other[3] * CURVE_D % PRIME
    d = 2 * one[2] * other[2] % PRIME
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % PRIME, g * h % PRIME, f * g % PRIME, e * h % PRIME


def multiply(scalar: int, point: Point) -> Point:
    """Multiply a point by a number."""
    result = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            result = add_points(result, point)
        point, scalar = add_points(point, point), scalar >> 1
    return result


def signature_fits(public: bytes, signature: bytes, text: bytes) -> bool:
    """Return whether `signature` is that of the Ed25519 key `public` over `text`."""
    if len(public) != 32 or len(signature) != 64:
        return False
    scalar = int.from_bytes(signature[32:], "little")
    if scalar >= ORDER:
        return False
    key, commitment = decode_point(public), decode_point(signature[:32])
    challenge = int.from_bytes(hashlib.sha512(signature[:32] + public + text).digest(), "little") % ORDER
    base_y = 4 * pow(5, PRIME - 2, PRIME) % PRIME
    base_x = recover_x(base_y, 0)
    left = multiply(scalar, (base_x, base_y, 1, base_x * base_y % PRIME))
    right = add_points(commitment, multiply(challenge, key))
    same_x = (left[0] * right[2] - right[0] * left[2]) % PRIME == 0
    return same_x and (left[1] * right[2] - right[1] * left[2]) % PRIME == 0


def root_from_proof(leaf: bytes, index: int, size: int, proof: list[str]) -> bytes:
    """Return the root of a tree of RFC 6962 that a proof leads to."""
    rest, last, found = list(proof), size - 1, leaf
    if type(index) is not int or type(size) is not int or not 0 <= index < size:
        raise BadReceiptError(f"there is no leaf {index} in a tree of {size}")
    while last:
        if index % 2 or index < last:
            if not rest:
                raise BadReceiptError("a proof is too short")
            beside = bytes.fromhex(rest.pop(0))
            found = hashlib.sha256(b"\x01" + (beside + found if index % 2 else found + beside)).digest()
        index, last = index // 2, last // 2
    if rest:
        raise BadReceiptError("a proof is too long")
    return found


def check_tree(tree: dict[str, Any], public: bytes) -> None:
    """Raise BadReceiptError unless the key signed this tree."""
    for name in ("writer", "day", "root", "time", "key"):
        if not isinstance(tree[name], str) or tree[name].split() != [tree[name]]:
            raise BadReceiptError(f"the {name} of a tree is no single word")  # it could shift the fields of the text
    fields = (tree[name] for name in ("writer", "day", "first", "size", "root", "time", "key"))
    text = "interlock-tree 1 " + " ".join(map(str, fields))
    if not signature_fits(public, base64.b64decode(tree["signature"], validate=True), text.encode()):
        raise BadReceiptError(f"the signature of the tree of {tree['day']} is wrong")


def check_event(event: dict[str, Any], trees: list[dict[str, Any]], call_id: str) -> dict[str, Any]:
    """Raise BadReceiptError unless the event is in its tree, at its number, and of the call."""
    tree, text = trees[event["tree"]], json.loads(event["body"])
    leaf = hashlib.sha256(b"\x00" + event["body"].encode()).digest()
    root = root_from_proof(leaf, event["index"], tree["size"], event["proof"])
    if root.hex() != tree["root"]:
        raise BadReceiptError(f"event {event['seq']} is not in the tree of {tree['day']}")
    if event["seq"] != tree["first"] + event["index"]:
        raise BadReceiptError(f"event {event['seq']} has another number")
    if call_id not in (text.get("call_id"), text.get("event_id")):
        raise BadReceiptError(f"event {event['seq']} is of another call")
    return text


def key_id(public: bytes) -> str:
    return hashlib.sha256(public).hexdigest()[:16]


def read_pem(path: str) -> bytes:
    data = base64.b64decode("".join(line for line in Path(path).read_text().split("\n") if "-----" not in line))
    if not data.startswith(PEM_HEAD) or len(data) != len(PEM_HEAD) + 32:
        raise BadReceiptError(f"{path} is no Ed25519 public key")
    return data[len(PEM_HEAD) :]


def check(receipt: dict[str, Any], trusted: list[bytes]) -> list[dict[str, Any]]:
    """Return the events of a receipt. `trusted`: public keys; without any, its own. Raises BadReceiptError."""
    if receipt.get("version") != 1 or receipt.get("kind") != "interlock-receipt" or not receipt.get("events"):
        raise BadReceiptError("it is no receipt of version 1 with events")
    keys = {key_id(key): key for key in trusted or [base64.b64decode(one) for one in receipt["keys"].values()]}
    for tree in receipt["trees"]:
        if tree["key"] not in keys:
            raise BadReceiptError(f"it is signed by key {tree['key']}, which is not among those that you trust")
        check_tree(tree, keys[tree["key"]])
    return [check_event(event, receipt["trees"], receipt["call_id"]) for event in receipt["events"]]


def main() -> int:
    """Check one receipt."""
    parser = argparse.ArgumentParser(description="Check a receipt of `interlock audit receipt`.")
    parser.add_argument("receipt", type=Path)
    parser.add_argument("--public-key", action="append", default=[], help="a key that you trust (PEM)")
    chosen = parser.parse_args()
    try:
        receipt = json.loads(chosen.receipt.read_text())
        events = check(receipt, [read_pem(path) for path in chosen.public_key])
    except (BadReceiptError, OSError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        print(f"BAD: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    for event in events:
        print(event.get("kind"), event.get("tool"), event.get("decision") or event.get("outcome"), event.get("time"))
    if not chosen.public_key:
        print(f"The key is the receipt's own: {', '.join(receipt['keys'])}. Give --public-key.", file=sys.stderr)
        return 3
    print(f"good: {len(events)} events of call {receipt['call_id']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
