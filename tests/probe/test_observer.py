"""What strace and the sinks saw, in its place: from recorded lines, without root."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from proxy.probe.observation_facts import RunContext
from proxy.probe.observer import MAX_KEPT, Observer
from proxy.trace.capability import Capability


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def observer(**fields: Any) -> tuple[Observer, Clock]:
    clock = Clock()
    return Observer(RunContext("/h", "/p"), "/w", clock, **fields), clock


def feed(watch: Observer, *lines: str) -> None:
    watch.feed("".join(f"{line}\n" for line in lines).encode())


def open_line(pid: int, time: float, path: str) -> str:
    return f'{pid} {time:.6f} openat(AT_FDCWD</w>, "{path}", O_RDONLY) = 3<{path}>'


def places(watch: Observer) -> list[tuple[str, int | None]]:
    return [(record.observation.target, record.call) for record in watch.records]


def test_time_tells_whose_something_is() -> None:
    watch, clock = observer()
    for at, call in ((10.0, 0), (20.0, 1), (30.0, None)):
        clock.now = at
        watch.begin(call)
    feed(watch, *(open_line(7, at, f"/{at:.0f}") for at in (5.0, 11.0, 19.9, 20.5, 31.0)))
    assert places(watch) == [("/5", None), ("/11", 0), ("/20", 0), ("/20", 1), ("/31", None)]


def test_a_process_stays_with_the_call_that_started_it() -> None:
    watch, clock = observer()
    feed(watch, open_line(7, 1.0, "/start"))
    clock.now = 10.0
    watch.begin(0)
    feed(watch, "7 10.100000 clone(child_stack=NULL, flags=SIGCHLD) = 8")
    clock.now = 20.0
    watch.begin(1)
    feed(watch, open_line(8, 21.0, "/late"), "8 21.100000 clone(child_stack=NULL, flags=SIGCHLD) = 9")
    feed(watch, open_line(9, 22.0, "/later"), open_line(7, 22.5, "/own"))
    assert places(watch) == [("/start", None), ("/late", 0), ("/later", 0), ("/own", 1)]


def test_a_thread_of_the_server_works_for_whoever_calls() -> None:
    watch, clock = observer()
    feed(watch, open_line(7, 1.0, "/start"))
    clock.now = 10.0
    watch.begin(0)
    feed(watch, "7 10.100000 clone3({flags=CLONE_VM|CLONE_THREAD|CLONE_SIGHAND, exit_signal=0}, 88) = 8")
    clock.now = 20.0
    watch.begin(1)
    feed(watch, open_line(8, 21.0, "/pool"))
    assert places(watch)[-1] == ("/pool", 1)


def test_lines_may_come_in_pieces() -> None:
    watch, _ = observer()
    line = open_line(7, 1.0, "/x").encode() + b"\n"
    watch.feed(line[:20])
    assert watch.reader.lines == 0
    watch.feed(line[20:])
    assert (watch.reader.lines, watch.reader.unparsed) == (1, 0)


def test_what_cannot_be_read_is_counted() -> None:
    watch, _ = observer()
    feed(watch, "what is this")
    assert watch.reader.unparsed == 1


def test_the_programs_that_start_the_server_are_learned() -> None:
    watch, _ = observer()
    feed(
        watch,
        '7 1.000000 execve("/usr/bin/node", ["node", "x.js"], 0x7ff /* 3 vars */) = 0',
        open_line(7, 2.0, "/h/.npmrc"),
    )
    assert watch.records[-1].program == "node"


def test_the_same_again_and_again_is_kept_a_few_times_and_what_is_sent_always() -> None:
    watch, _ = observer()
    feed(watch, *(open_line(7, 1.0 + n / 1000, "/same") for n in range(50)))
    assert len(watch.records) == 3
    feed(watch, "7 2.0 socket(AF_INET, SOCK_STREAM, IPPROTO_TCP) = 3<socket:[5]>")
    connect = '{sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("1.2.3.4")}'
    feed(watch, f"7 2.000001 connect(3<socket:[5]>, {connect}, 16) = 0")
    feed(watch, *('7 3.000000 sendto(3<socket:[5]>, "piece", 5, 0, NULL, 0) = 5' for _ in range(10)))
    assert sum(bool(record.observation.data) for record in watch.records) == 10
    assert watch.dropped == 0


def test_files_that_a_call_looks_for_among_temporary_ones_are_told_with_the_first_call_that_did() -> None:
    watch, clock = observer()
    missing = '{{pid}} {{at}} openat(AT_FDCWD, "{}", O_RDONLY) = -1 ENOENT (No such file or directory)'
    looked = '7 12.000000 newfstatat(AT_FDCWD, "/tmp/seen", 0x7ff, 0) = -1 ENOENT (No such file or directory)'
    feed(watch, missing.format("/tmp/start").format(pid=7, at="1.000000"))
    clock.now = 10.0
    watch.begin(4)
    feed(watch, looked, *(missing.format(path).format(pid=7, at="12.5") for path in ("/tmp/mark", "/h/x", "/tmp/mark")))
    feed(watch, missing.format("/tmp/../etc/x").format(pid=7, at="12.6"))  # would be made there
    feed(watch, open_line(7, 13.0, "/tmp/there"))
    clock.now = 20.0
    watch.begin(5)
    feed(watch, missing.format("/tmp/mark").format(pid=7, at="21.5"))
    assert watch.missed == {"/tmp/seen": 4, "/tmp/mark": 4}


def test_past_what_is_kept_of_a_kind_is_counted_and_other_kinds_have_room() -> None:
    watch, _ = observer()
    watch.begin(0)
    feed(watch, *(open_line(7, 1.0, f"/{n}") for n in range(MAX_KEPT + 5)))
    feed(watch, '7 2.000000 unlink("/x") = 0')
    assert watch.dropped == 5
    assert watch.records[-1].observation.capability is Capability.FS_DELETE


def test_a_start_may_read_more_files_than_a_call() -> None:
    watch, _ = observer()
    feed(watch, *(open_line(7, 1.0, f"/{n}") for n in range(2 * MAX_KEPT)))
    assert watch.dropped == 0


def test_an_inherited_file_is_none_of_its_doing() -> None:
    watch, _ = observer(ignored=frozenset({"/p/stderr"}))
    feed(watch, '7 1.000000 write(2</p/stderr>, "hello", 5) = 5')
    assert watch.records == []


def note(kind: str, time: float, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "time": time, **fields}


@pytest.mark.parametrize("path", ["/var/run/docker.sock", "/run/docker.sock"])
def test_a_socket_whose_sink_is_slow_is_not_blamed_on_the_next_call(path: str) -> None:
    watch, clock = observer()
    for at, call in ((10.0, 0), (20.0, 1)):
        clock.now = at
        watch.begin(call)
    feed(watch, "7 11.0 socket(AF_UNIX, SOCK_STREAM, 0) = 3<socket:[5]>")
    feed(watch, f'7 11.1 connect(3<socket:[5]>, {{sa_family=AF_UNIX, sun_path="{path}"}}, 23) = 0')
    watch.note(note("unix", 20.5, path="/run/docker.sock", head=base64.b64encode(b"GET /").decode()))
    watch.finish()
    assert [(record.observation.action, record.call) for record in watch.records] == [("connect", 0), ("send", 0)]


def test_a_sinks_note_goes_where_strace_saw_the_same() -> None:
    watch, clock = observer()
    feed(watch, open_line(7, 1.0, "/start"))
    clock.now = 10.0
    watch.begin(0)
    feed(watch, "7 10.100000 clone(child_stack=NULL, flags=SIGCHLD) = 8")
    clock.now = 20.0
    watch.begin(1)
    feed(watch, "8 21.0 socket(AF_INET, SOCK_STREAM, IPPROTO_TCP) = 3<socket:[5]>")
    peer = '{sa_family=AF_INET, sin_port=htons(443), sin_addr=inet_addr("11.64.0.1")}'
    feed(watch, f"8 21.000001 connect(3<socket:[5]>, {peer}, 16) = 0")
    head = base64.b64encode(b"POST / secret").decode()
    watch.note(note("tcp", 21.01, address="11.64.0.1", port=443, name="drop.example", tls=True, head=head))
    watch.note(note("dns", 20.99, name="drop.example", type="A", address="11.64.0.1"))
    watch.finish()
    sent, asked = watch.records[-2:]
    assert (sent.call, sent.observation.peer, sent.observation.data) == (0, "drop.example:443", b"POST / secret")
    assert "inside TLS" in sent.observation.line
    assert asked.call == 1


def test_what_is_no_note_is_passed_over() -> None:
    watch, _ = observer()
    for each in ({}, {"kind": "dns"}, note("ready", 1.0), note("tcp", 1.0, head="%"), {"kind": "tcp", "time": "x"}):
        watch.note(each)
    watch.finish()
    assert [record.observation.capability for record in watch.records] == [Capability.NET_CONNECT]
