"""The choices that descriptions list."""

from __future__ import annotations

import pytest

from proxy.probe.listed_choices import described, listed_choices, listed_examples


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ("Type of logs to view (system, access, error)", ["system", "access", "error"]),
        ("What to check (ping, trace-route or port_scan).", ["ping", "trace-route", "port_scan"]),
        ("The format, one of: 'json', 'csv', 'xml'", ["json", "csv", "xml"]),
        ("Supports SOC2, ISO27001, PCI-DSS, HIPAA.", ["SOC2", "ISO27001", "PCI-DSS", "HIPAA"]),
        ("Valid values: low | medium | high", ["low", "medium", "high"]),
        ("Folder to look into (inbox, sent, drafts, etc.)", ["inbox", "sent", "drafts"]),
        ("Name of the file to read (e.g., 'welcome.txt')", []),
        ("An identifier (e.g., b-a9565a64)", []),
        ("The text to send. It is not changed, and nothing is added to it.", []),
        ("Name of the user, who must exist", []),
        ("", []),
    ],
)
def test_what_is_listed(text: str, choices: list[str]) -> None:
    assert list(listed_choices(text)) == choices


@pytest.mark.parametrize(
    ("text", "examples"),
    [
        ("Name of the file to read (e.g., 'welcome.txt')", ["welcome.txt"]),
        ("IANA name (e.g., 'Europe/London', 'Asia/Tokyo')", ["Europe/London", "Asia/Tokyo"]),
        ("What to look for (such as errors, warnings, etc.)", ["errors", "warnings"]),
        ("A file key, like 'data/2020/file.csv'", ["data/2020/file.csv"]),
        ("Which one (first, last)", []),
    ],
)
def test_what_is_an_example(text: str, examples: list[str]) -> None:
    assert list(listed_examples(text)) == examples


def test_a_long_list_is_bounded() -> None:
    assert len(listed_choices(f"({', '.join(f'choice{number}' for number in range(100))})")) <= 12


TOOL = """Show the logs.

    Args:
        level (str): How much to show (all, none)
        kind: Which ones
              (system, access)
        limit: How many

    Returns:
        The lines
"""


def test_the_line_of_a_parameter_in_the_tools_description_counts() -> None:
    assert listed_choices(described(TOOL, "level", "")) == ("all", "none")
    assert listed_choices(described(TOOL, "kind", "")) == ("system", "access")
    assert listed_choices(described(TOOL, "limit", "")) == ()
    assert listed_choices(described(TOOL, "limit", "(few, many)")) == ("few", "many")
    assert listed_choices(described(":param mode: either fast or slow", "mode", "")) == ("fast", "slow")


def test_odd_names_and_huge_texts_are_harmless() -> None:
    assert described(TOOL, "a(b" * 100, "x") == "x"
    assert described(TOOL, "[", "x") == "x"
    assert listed_choices("a, " * 1_000_000) == ()
    assert listed_choices("(" + "a, b or " * 100_000) == ()
