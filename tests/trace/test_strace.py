from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.trace import strace
from proxy.trace.arguments import quoted, returned, split_arguments
from proxy.trace.normalise import Normaliser
from proxy.trace.strace import Ended, Resumed, Superseded, Syscall, TraceReader, Unfinished, Unparsed, parse_line
from tests.trace.goldens import FOLDER, events_of, golden_names, lines_of, shown

LINES = [line for name in golden_names() for line in lines_of(name)]
HEAD = "100  1794811565.000001 "


@pytest.mark.parametrize("name", golden_names())
def test_a_recorded_trace_is_read_as_it_was_found_right(name: str) -> None:
    expected = [json.loads(line) for line in (FOLDER / f"{name}.json").read_text().splitlines()]
    assert [json.loads(json.dumps(shown(event))) for event in events_of(name)] == expected


@pytest.mark.parametrize("name", [name for name in golden_names() if name != "ends"])
def test_nothing_of_a_real_trace_is_left_unread(name: str) -> None:
    assert [event.line for event in events_of(name) if isinstance(event, Unparsed)] == []


def test_every_call_of_threads_that_run_at_once_comes_out_whole() -> None:
    events = events_of("unfinished")
    finished = [event for event in events if isinstance(event, Syscall)]
    begun = [event for event in events if isinstance(event, Unfinished)]
    assert len(finished) + len(begun) == len(lines_of("unfinished"))
    read = next(event for event in finished if event.pid == 1700 and event.name == "read")
    assert split_arguments(read.arguments) == ["6</etc/hostname>", r'"vm\n"', "4"]
    assert (read.value, read.until > read.time) == (3, True)
    assert read.line == '1700  1794811565.066684 read(6</etc/hostname>, "vm\\n", 4) = 3'


def test_a_vforked_childs_program_is_seen_before_the_parent_returns() -> None:
    kinds = [(type(event).__name__, event.pid, getattr(event, "name", "")) for event in events_of("vfork_by_clone3")]
    assert kinds[:4] == [
        ("Unfinished", 3530, "clone3"),
        ("Unfinished", 3531, "execve"),
        ("Syscall", 3530, "clone3"),
        ("Syscall", 3531, "execve"),
    ]


def test_a_thread_that_executes_goes_on_under_its_processs_number() -> None:
    superseded, executed = events_of("superseded")[3:5]
    assert isinstance(superseded, Superseded)
    assert (superseded.pid, superseded.by) == (3530, 3532)
    assert isinstance(executed, Syscall)
    assert (executed.pid, executed.name, executed.value) == (3530, "execve", 0)


WAKE = r'write(16<anon_inode:[eventfd]>, "\1\0\0\0\0\0\0\0", 8) = 8'


@pytest.mark.parametrize(
    ("call", "wakes"),
    [
        (WAKE, True),
        (WAKE.replace(r"\1", r"\""), True),
        (f"{WAKE}0", False),
        (WAKE.replace("[eventfd]", "[bpf-map]"), False),
        (WAKE.replace("anon_inode:[eventfd]", "/tmp/x"), False),
        ('write(3</tmp/x>, "<anon_inode:[eventfd]>", 8) = 8', False),
        ('write(3</tmp/x>, "write(1<anon_inode:[eventfd]>, \\"\\1\\", 8) = 8', False),
        ('openat(AT_FDCWD</>, "/<anon_inode:[eventfd]>", O_RDONLY) = 3</tmp/x>', False),
        ('sendto(3<anon_inode:[eventfd]>, "", 8) = 8', False),
        (WAKE.replace('"\\1', '"x", 8) = 8 write(3</tmp/x>, "\\1'), False),
        (WAKE.replace(") = 8", " <unfinished ...>"), False),
        (WAKE.replace("= 8", "= -1 EAGAIN (Resource temporarily unavailable)"), False),
    ],
)  # fmt: skip
def test_a_write_to_an_eventfd_is_told_from_all_that_only_looks_like_one(call: str, wakes: bool) -> None:
    assert strace.is_wake(HEAD + call) is wakes
    assert not strace.is_wake(call)


@given(st.text('0189 ()<>[]=,.\\"/anon_ide:evtfdwr8x', max_size=40), st.integers(0, len(WAKE)))
def test_what_is_passed_over_as_a_wake_means_nothing(chosen: str, at: int) -> None:
    line = HEAD + WAKE[:at] + chosen + WAKE[at:]
    if strace.is_wake(line):
        event = parse_line(line)
        assert isinstance(event, Syscall)
        assert (event.name, event.value, Normaliser().take(event)) == ("write", 8, [])


def test_the_end_of_a_rest_without_beginning_is_counted() -> None:
    reader = TraceReader()
    kinds = [type(reader.take(line)) for line in lines_of("ends")]
    assert kinds[-2:] == [Unparsed, Unparsed]
    assert (reader.lines, reader.unparsed) == (len(kinds), 2)


def test_a_rest_of_another_call_is_not_joined() -> None:
    reader = TraceReader()
    reader.take(HEAD + "read(0<pipe:[1]>,  <unfinished ...>")
    assert isinstance(reader.take(HEAD + "<... write resumed>) = 1"), Unparsed)


def test_a_thread_that_was_killed_leaves_no_beginning_behind() -> None:
    reader = TraceReader()
    reader.take(HEAD + "read(0<pipe:[1]>,  <unfinished ...>")
    assert isinstance(reader.take(HEAD + "+++ killed by SIGKILL +++"), Ended)
    assert isinstance(reader.take(HEAD + '<... read resumed>"", 1) = 0'), Unparsed)


def test_beginnings_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strace, "MAX_PENDING", 3)
    reader = TraceReader()
    for pid in range(10):
        reader.take(f"{pid}  1.0 read(0<pipe:[1]>,  <unfinished ...>")
    assert list(reader._pending) == [7, 8, 9]


NAMES = st.text(st.sampled_from('ab)(=<>"\\ ,03?[]{}.\n-') | st.characters(max_codepoint=255), max_size=20)


def printed(data: bytes, also: bytes = b'"\\') -> str:
    """Return `data` as strace prints it."""
    return "".join(chr(c) if 32 <= c < 127 and c not in also else f"\\{c:03o}" for c in data)


@given(NAMES, NAMES, st.integers(0, 3))
def test_a_name_cannot_pass_for_the_grammar(name: str, other: str, form: int) -> None:
    path, annotation = name.encode("latin-1"), other.encode("latin-1")
    arguments = f'AT_FDCWD</tmp>, "{printed(path)}", O_RDONLY'
    shown_path = f"<{printed(annotation, b'<>"\\')}>"
    line = f"{HEAD}openat({arguments}"
    if form == 3:
        parsed = parse_line(f"{line} <unfinished ...>")
        assert isinstance(parsed, Unfinished)
        assert quoted(split_arguments(parsed.arguments)[1]) == (path, False)
        return
    if form == 2:
        rest = parse_line(f"{HEAD}<... openat resumed>) = 3{shown_path}")
        assert isinstance(rest, Resumed)
        assert rest.value == 3
        return
    whole = parse_line(f"{line}) = 3{shown_path}{'(deleted)' if form else ''}")
    assert isinstance(whole, Syscall)
    assert quoted(split_arguments(whole.arguments)[1]) == (path, False)
    given_back = returned(whole.value, whole.returned)
    assert given_back == (3, annotation, bool(form))


@given(NAMES)
def test_the_fast_way_and_the_thorough_way_agree(name: str) -> None:
    path = printed(name.encode("latin-1"))
    annotated = f"3<{printed(name.encode('latin-1'), b'<>"\\')}>"
    for line in (
        f'{HEAD}unlink("{path}") = 0',
        f'{HEAD}unlink("{path}") = -1 ENOENT (No such file or directory)',
        f"{HEAD}close({annotated}) = 0",
        f"{HEAD}fsync({annotated} <unfinished ...>",
        f"{HEAD}fsync({annotated} <unfinished ...>) = ?",
        f"{HEAD}dup({annotated}) = {annotated}",
        f'{HEAD}write({annotated}, "{path}"..., 4096) = 4096',
    ):
        assert parse_line(line) == strace._parse_any(line)


@given(st.text(max_size=200) | st.text(st.sampled_from('019 .()=<>"\\,+-?ax\n'), max_size=200))
def test_no_text_makes_the_reader_raise_or_lose_it(text: str) -> None:
    assert TraceReader().take(text).line == text


@settings(max_examples=300)
@given(st.randoms(use_true_random=False), st.integers(1, 6))
def test_a_damaged_trace_is_read_line_for_line(dice: random.Random, wounds: int) -> None:
    reader = TraceReader()
    lines = [damaged(line, dice, wounds) for line in dice.sample(LINES, 30)]
    events = [reader.take(line) for line in lines]
    assert reader.lines == len(lines)
    assert reader.unparsed == sum(isinstance(event, Unparsed) for event in events)
    for line, event in zip(lines, events, strict=True):
        if isinstance(event, Syscall):
            split_arguments(event.arguments)
            assert (event.error, event.ok, event.injected, event.returned) is not None
        else:
            assert event.line == line


def damaged(line: str, dice: random.Random, wounds: int) -> str:
    for _ in range(wounds):
        at = dice.randrange(len(line) + 1)
        match dice.randrange(4):
            case 0:
                line = line[:at]
            case 1:
                line = line[:at] + dice.choice('"<>()=\\ ,.\x00é0') + line[at:]
            case 2:
                line = line[:at] + line[at + dice.randrange(1, 9) :]
            case _:
                other = dice.choice(LINES)
                line = line[:at] + other[dice.randrange(len(other)) :]
    return line


@pytest.mark.timeout(60)
def test_a_long_line_takes_no_longer_than_it_is() -> None:
    for middle in ('"' * 200_000, "<" * 200_000, ")" * 200_000, "<a" * 100_000, ") = " * 50_000, "\\" * 200_000):
        assert parse_line(f"{HEAD}write({middle}").line
