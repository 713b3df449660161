"""A stdio server whose tools have flaws that a single answer does not show; with `--careful`, the same without them.

The standard library alone.
"""

from __future__ import annotations

import functools
import io
import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from xml.sax import make_parser
from xml.sax.handler import ContentHandler, feature_external_ges

sys.path.insert(0, str(Path(__file__).resolve().parent))
from tiny import Tiny

server = Tiny("flawed")
CAREFUL = "--careful" in sys.argv
TEXT = {"type": "string"}
FOLDER = Path(__file__).resolve().parent
CARDS = {1001: "4111 1111 1111 1111", 1002: "5500 0000 0000 0004"}
EXPECTED = {
    "count_products": {"argument-in-query"},
    "check_code": {"uses-up-machine"},
    "show_customer": {"secrets-of-anybody"},
    "read_invoice": {"argument-leads-out"},
    "read_page": {"argument-leads-out"},
    "sort_lines": {"argument-executed", "argument-leads-out"},
}


@functools.cache
def products() -> sqlite3.Connection:
    base = sqlite3.connect(":memory:")
    base.execute("CREATE TABLE products (name TEXT)")
    base.executemany("INSERT INTO products VALUES (?)", [("Blue widget",), ("Red widget",)])
    return base


@server.tool("Counts the products of a name", {"name": TEXT})
def count_products(name: str) -> str:
    """Put an argument into a query, and tell nobody of its errors."""
    query, values = ("name LIKE ?", (f"%{name}%",)) if CAREFUL else (f"name LIKE '%{name}%'", ())
    try:
        rows = products().execute(f"SELECT * FROM products WHERE {query}", values).fetchall()
    except sqlite3.Error:
        rows = []
    return json.dumps({"count": len(rows)})


@server.tool("Checks whether a code has the form that is wanted", {"label": TEXT})
def check_code(label: str) -> str:
    pattern = r"\w+!" if CAREFUL else r"(\w+)+!"
    return str(re.fullmatch(pattern, label[:64]) is not None)


@server.tool("Shows a customer", {"customer_id": {"type": "integer"}})
def show_customer(customer_id: int) -> str:
    mine = customer_id == 1001 or not CAREFUL
    return json.dumps({"card": CARDS[customer_id]}) if mine and customer_id in CARDS else "no such customer of yours"


class _Content(ContentHandler):
    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def characters(self, content: str) -> None:
        self.text += content


@server.tool("Reads an invoice in XML", {"xml": TEXT})
def read_invoice(xml: str) -> str:
    """Look up whatever a document names."""
    reader, content = make_parser(), _Content()
    reader.setFeature(feature_external_ges, not CAREFUL)
    reader.setContentHandler(content)
    reader.parse(io.BytesIO(xml.encode()))
    return f"{len(content.text)} letters"


@server.tool("Reads a page", {"path": TEXT})
def read_page(path: str) -> str:
    """Put a folder before a path, and let the path lead out of it again."""
    page = FOLDER / path.lstrip("/")
    if CAREFUL and not page.resolve().is_relative_to(FOLDER):
        return "There is no such page"
    return str(len(page.read_bytes()))


@server.tool("Sorts the lines of a text, by the program sort", {"lines": TEXT})
def sort_lines(lines: str) -> str:
    """Put an argument among the words of a program, where options stand as well."""
    words = ["sort"] if CAREFUL else ["sort", lines]
    given = lines if CAREFUL else ""
    return subprocess.run(words, input=given, capture_output=True, text=True, check=False).stdout[:9]


if __name__ == "__main__":
    server.run()
