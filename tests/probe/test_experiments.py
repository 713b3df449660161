"""Experiments on tools with flaws, made of real parts, and on honest twins, of which none is blamed."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from proxy.probe.experiments import Answer, Proved, plan
from proxy.probe.synthesise import SampleFiles

SAMPLES = SampleFiles("/h/documents/notes.md", "/h/documents/b.txt", "/h/documents", "/h/repo", "/h/documents/new.txt")
TEXT = {"type": "string"}
CARDS = {1001: "4111 1111 1111 1111", 1002: "5500 0000 0000 0004"}
type Tool = Callable[[Any], str]


def tried(
    tool: Tool,
    name: str = "text",
    schema: Any = None,
    about: str = "Finds something",
    *ids: str,
    sql: bool = False,
    seconds: Callable[[str], float] | None = None,
) -> dict[str, Proved]:
    """Make all experiments on a tool of one parameter; return what they proved, by the rule."""
    properties = {name: schema or TEXT}
    definition = {
        "name": "find",
        "description": about,
        "inputSchema": {"type": "object", "properties": properties, "required": [name]},
    }
    said = ['{"role": "user"}']
    found = {}
    for planned in plan(definition, SAMPLES, said, ids, sql=sql):
        trial = planned.experiment.trial(planned.parameter)
        try:
            value = next(trial)
            while (arguments := planned.put(value)) is not None:
                began = time.process_time()
                text = answered(tool, arguments[name])
                took = seconds(arguments[name]) if seconds else time.process_time() - began
                value = trial.send(Answer(text, took))
        except StopIteration as done:
            found.update({done.value.rule: done.value} if done.value else {})
    return found


def answered(tool: Tool, value: Any) -> str:
    try:
        return tool(value)
    except Exception as error:  # noqa: BLE001  a tool's error is its answer
        return f"Error: {error!r}"


@pytest.fixture(scope="module", name="products")
def products_of_a_shop() -> Iterator[sqlite3.Connection]:
    base = sqlite3.connect(":memory:")
    base.execute("CREATE TABLE products (name TEXT, price REAL)")
    base.executemany("INSERT INTO products VALUES (?, ?)", [("Blue widget", 9.9), ("Red widget", 14.5)])
    yield base
    base.close()


def counts(products: sqlite3.Connection, query: str) -> Tool:
    """Return a tool that tells how many rows a query brings, and nothing of its errors."""

    def count(text: str) -> str:
        try:
            rows = products.execute(query.format(text)).fetchall()
        except sqlite3.Error:
            rows = []
        return json.dumps({"time": time.time(), "searched": text, "count": len(rows)})

    return count


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM products WHERE name = '{}'",
        "SELECT * FROM products WHERE name LIKE '%{}%'",
        "SELECT * FROM products WHERE (lower(name) = lower('{}')) AND price > 1",
        "SELECT * FROM products WHERE name = '{}' AND price > 100 LIMIT 1",
        'SELECT * FROM products WHERE name = "{}"',
        "SELECT * FROM products WHERE rowid = {}",
    ],
)
def test_a_condition_that_becomes_part_of_a_query_is_proved_by_a_number_alone(
    products: sqlite3.Connection, query: str
) -> None:
    found = tried(counts(products, query))
    assert found.keys() == {"argument-in-query"}
    assert "brings" in found["argument-in-query"].quote


def test_who_runs_any_query_has_none_to_be_escaped_from(products: sqlite3.Connection) -> None:
    flawed = counts(products, "SELECT * FROM products WHERE name = '{}'")
    assert tried(flawed, sql=True) == {}
    assert tried(flawed, "condition") == {}
    assert tried(flawed, "code") == {}


def test_a_text_that_is_bound_to_a_query_is_not_blamed(products: sqlite3.Connection) -> None:
    def bound(text: str) -> str:
        rows = products.execute("SELECT * FROM products WHERE name LIKE ?", (f"%{text}%",)).fetchall()
        return f"{len(rows)} rows for {text!r}"

    assert tried(bound) == {}


def ranked(text: str) -> str:
    return json.dumps(Counter(re.findall(r"\w+", text)).most_common())


@pytest.mark.parametrize(
    "tool",
    [
        ranked,
        lambda text: text,
        lambda text: html.escape(text).upper(),
        lambda text: "".join(sorted(text)),
        lambda text: f"{len(text)} letters, {len(set(text.split()))} words, {len(set(text))} of them unlike",
        lambda text: hashlib.sha256(text.encode()).hexdigest(),
        lambda text: text[::-1],
        lambda _: "",
        lambda _: f"request {time.time_ns()}",
        lambda text: f"{'no ' if len(text) % 2 else ''}match",
        lambda text: str(json.loads(text)),
        lambda text: " or ".join(sorted(set(text.split(" or ")))),
        lambda text: "several" if " or " in text else "one",
        lambda text: base64.b64decode(text).decode(),
    ],
)
def test_whoever_repeats_counts_sorts_hashes_or_searches_words_is_not_blamed(tool: Tool) -> None:
    assert tried(tool, about="Finds words in a JSON text, e.g. of settings") == {}


PEOPLE = [{"name": "alice", "password": "wonder"}, {"name": "bob", "password": "builder"}]


def fits_operator(value: Any, wanted: Any) -> bool:
    if not isinstance(wanted, dict):
        return bool(value == wanted)
    tests = {
        "$ne": value != wanted.get("$ne"),
        "$in": value in wanted.get("$in", ()),
        "$nin": value not in wanted.get("$nin", ()),
    }
    return all(tests.get(name, False) for name in wanted)


def finds(person: Any) -> str:
    return next((f"found {each['name']}" for each in PEOPLE if fits_operator(each["name"], person)), "nobody")


def logs_in(text: str) -> str:
    asked = json.loads(text)
    matching = (each for each in PEOPLE if all(fits_operator(each.get(k), v) for k, v in asked.items()))
    return next((f"welcome, {each['name']}" for each in matching), "nobody")


def test_an_operator_in_place_of_a_text_is_proved() -> None:
    assert tried(lambda text: finds(json.loads(text) if text.startswith("{") else text)).keys() == {"argument-in-query"}
    assert tried(finds, schema={"type": ["string", "object"]}).keys() == {"argument-in-query"}
    about = 'Logs in, as in {"name": "alice", "password": "pw"}'
    assert tried(logs_in, about=about).keys() == {"argument-in-query"}


def test_a_filter_that_is_there_to_be_one_is_no_flaw_unless_a_password_is_matched() -> None:
    assert tried(finds, "filter", {"type": ["string", "object"]}) == {}
    assert tried(logs_in, about='Finds people, as in {"name": "alice", "age": 7}') == {}
    assert tried(lambda text: finds(str(json.loads(text)) if text.startswith("{") else text)) == {}


def test_a_slow_pattern_is_proved_by_processor_time_and_a_linear_one_is_not() -> None:
    found = tried(lambda text: str(re.fullmatch(r"(\w|\w\w)+!", text[:64])))
    assert found.keys() == {"uses-up-machine"}
    assert "s of processor time" in found["uses-up-machine"].quote
    assert tried(lambda text: str(re.fullmatch(r"\w+!", text))) == {}


@pytest.mark.parametrize("seconds", [lambda length: 0.01 * length, lambda length: 2.0 * (length > 20)])
def test_a_tool_that_is_slow_for_other_reasons_has_no_slow_pattern(seconds: Callable[[int], float]) -> None:
    assert tried(lambda _: "done", seconds=lambda text: seconds(len(text))) == {}


def show(number: int) -> str:
    return json.dumps({"id": number, "card": CARDS[number]}) if number in CARDS else "no such customer"


def test_records_of_several_persons_are_proved_by_their_secrets() -> None:
    whole = {"type": "integer"}
    assert tried(show, "customer_id", whole).keys() == {"secrets-of-anybody"}
    assert tried(lambda text: show(int(text)), "id", TEXT, "Shows it", "1001", "1002").keys() == {"secrets-of-anybody"}
    mail = tried(lambda number: f"mail: someone{number}@example.net", "user_id", whole)
    assert mail.keys() == {"records-of-anybody"}


def test_records_of_one_person_or_none_are_no_finding() -> None:
    whole = {"type": "integer"}
    assert tried(lambda number: show(number) if number == 1001 else "not yours", "customer_id", whole) == {}
    assert tried(lambda _: f"the card is {CARDS[1001]}", "customer_id", whole) == {}
    assert tried(show, "depth", whole) == {}
    assert tried(lambda number: f"password: Xk9-{number}-pQz7!", "id", whole, "Shows a password of yours") == {}


class Merged:
    """Objects of JavaScript, as far as a merge that pollutes needs them: all share one prototype."""

    def __init__(self, *, polluted: bool, keeps: bool = False) -> None:
        self.prototype: dict[str, Any] = {}
        self.kept: dict[str, Any] = {}
        self.polluted = polluted
        self.keeps = keeps

    def load(self, value: Any) -> str:
        own: dict[str, Any] = self.kept if self.keeps else {}
        for key, inner in value.items():
            if key == "__proto__" and self.polluted:
                self.prototype.update(inner)
            else:
                own[key] = inner
        return json.dumps(own if self.keeps else {"role": own.get("role", self.prototype.get("role", "user"))})


@pytest.mark.parametrize("spell", [json.loads, lambda text: json.loads(base64.b64decode(text))])
def test_a_property_of_all_objects_is_proved_by_a_later_answer(spell: Callable[[str], Any]) -> None:
    server = Merged(polluted=True)
    assert tried(lambda text: server.load(spell(text)), "token").keys() == {"argument-pollutes"}
    assert tried(Merged(polluted=True).load, "settings", {"type": "object"}).keys() == {"argument-pollutes"}


def test_a_server_that_keeps_what_it_is_told_pollutes_nothing() -> None:
    kept = Merged(polluted=False, keeps=True)
    assert tried(kept.load, "settings", {"type": "object"}) == {}
    assert tried(Merged(polluted=False).load, "settings", {"type": "object"}) == {}


def test_values_that_a_schema_forbids_are_never_sent() -> None:
    sent: list[str] = []

    def take(text: str) -> str:
        sent.append(text)
        return "nothing"

    tried(take, schema={"type": "string", "maxLength": 12})
    assert all(len(each) <= 12 for each in sent)
