"""The words and variables that a server's own source waits for."""

from __future__ import annotations

import time

from proxy.probe.source_words import MAX_WORDS, SourceWord, source_ids, source_variables, source_words

PYTHON = """
import os

MAGIC = ["OPEN_SESAME", "let me in"]
DOMAIN = ".c2.example"

def lookup(code, city):
    if code == "GATE_7" and city.lower() in ("atlantis", "el dorado"):
        return 1
    if code in MAGIC or city.endswith(DOMAIN) or "ministry" in city:
        return 2
    match code:
        case "third":
            return 3

def other(kind):
    return kind == "elsewhere"
"""
JAVASCRIPT = """
const MARK = 'x-mark';
server.tool('lookup', async ({ code }) => {
  if (args.code === 'GATE_8' || code?.includes("half")) { run(); }
  switch (args["kind"]) { case 'fourth': break; }
  return ['fifth', "sixth"].includes(code);
});
"""


def texts(source: str, tool: str = "lookup") -> list[str]:
    return [word.text for word in source_words([source], tool)]


def test_words_of_comparisons_lists_and_constants_are_found_in_python() -> None:
    wanted = {"GATE_7", "atlantis", "el dorado", "OPEN_SESAME", "let me in", ".c2.example", "ministry", "third"}
    assert wanted <= set(texts(PYTHON))


def test_the_same_holds_for_javascript() -> None:
    assert {"GATE_8", "half", "fourth", "fifth", "sixth", "x-mark"} <= set(texts(JAVASCRIPT))


def test_a_word_names_what_is_compared_with_it() -> None:
    found = source_words(
        [PYTHON, JAVASCRIPT, 'if args.get("mode", "x") == "dark" or a["tone"] != "low": pass'], "lookup"
    )
    assert {
        SourceWord("GATE_7", "code"),
        SourceWord("ministry", "city"),
        SourceWord("GATE_8", "code"),
        SourceWord("dark", "mode"),
        SourceWord("low", "tone"),
    } <= set(found)


def test_what_is_compared_beside_the_name_of_the_tool_comes_first() -> None:
    far = "x = 1\n" * 2000
    source = f"def other(kind):\n    return kind == 'elsewhere'\n{far}def lookup(code):\n    return code == 'here'\n"
    assert texts(source) == ["here", "elsewhere"]
    assert texts(source, "other") == ["elsewhere", "here"]


def test_there_are_only_so_many_words_and_each_once() -> None:
    many = "".join(f"if a == 'w{number}' or a == 'w{number}': pass\n" for number in range(100))
    assert texts(many) == [f"w{number}" for number in range(MAX_WORDS)]


def test_what_any_call_takes_is_no_word() -> None:
    assert texts('open(name, "w"); print("hello"); lookup(f"{name} x"); log("a \\n b")') == []


def test_a_variable_has_the_value_that_it_is_compared_with_or_a_switchs() -> None:
    python = 'os.environ.get("STAGE", "dev").lower() == "live"; os.getenv("UNSAFE"); os.environ["API_TOKEN"]'
    assert source_variables([python]) == {"STAGE": "live", "UNSAFE": "1", "API_TOKEN": "1"}
    node = "if (process.env.STAGE === 'live' && process.env['UNSAFE']) {}"
    assert source_variables([node]) == {"STAGE": "live", "UNSAFE": "1"}


def test_a_table_of_variables_counts_where_the_environment_is_asked() -> None:
    table = 'WAITED = {"GATE_MODE": "OPEN"}\n'
    asked = "for name, value in WAITED.items():\n    if os.environ.get(name) == value: run()"
    assert source_variables([table + asked]) == {"GATE_MODE": "OPEN"}
    assert source_variables([table]) == {}


def test_a_variable_that_names_a_place_stays_unset_unless_a_value_is_known() -> None:
    source = (
        'os.getenv("NOTES_DIR"), os.getenv("PORT"), os.getenv("API_URL"), os.getenv("HTTPS_PROXY"), os.getenv("EDITOR")'
    )
    assert source_variables([source]) == {}
    assert source_variables(['os.environ.get("PYTHONIOENCODING"), os.getenv("LD_PRELOAD")']) == {}
    assert source_variables(['os.getenv("DATA_DIR") == "/opt/x"']) == {"DATA_DIR": "/opt/x"}


def test_a_source_that_is_written_to_stall_us_is_read_in_linear_time() -> None:
    def seconds(size: int) -> float:
        hostile = [
            "[" + '"a", ' * size,
            "a" * size * 5,
            '"' * size,
            "A" * size + "=",
            ".get(" * size,
            "environ.get(" * size,
        ]
        began = time.process_time()
        for source in hostile:
            source_words([source], "a")
            source_variables([source])
        return time.process_time() - began

    seconds(100)
    # Eight times as much takes about eight times as long: with a square it would be sixty-four.
    assert seconds(16_000) < 30 * max(seconds(2_000), 0.005)


def test_identifiers_of_records_are_found_beside_their_name_and_as_keys() -> None:
    source = (
        'X = [{ id: 1001, ownerId: 1003 }, {"user_id": "C-17"}]; Y = {"u2": {"n": 1}, 5: {}}; id = int(x); width = 300'
    )
    assert source_ids([source]) == ("1001", "C-17", "u2", "5")
    assert len(source_ids(["".join(f"id: {number};" for number in range(900))])) == MAX_WORDS
