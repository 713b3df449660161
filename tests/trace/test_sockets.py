from __future__ import annotations

import pytest

from proxy.trace import sockets
from proxy.trace.arguments import Address
from proxy.trace.sockets import show
from tests.trace.goldens import lines_of
from tests.trace.test_normalise import observe, tell

V4 = '{sa_family=AF_INET, sin_port=htons(443), sin_addr=inet_addr("1.2.3.4")}'
V6 = '{sa_family=AF_INET6, sin6_port=htons(443), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "::1", &sin6_addr)}'
DNS = '{sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("9.9.9.9")}'
QUERY = r'"\0224\1\0\0\1\0\0\0\0\0\0\3abc\3com\0\0\1\0\1"'
TCP = "socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, IPPROTO_TCP) = 3<socket:[7]>"
UDP = "socket(AF_INET, SOCK_DGRAM|SOCK_CLOEXEC, IPPROTO_IP) = 3<socket:[7]>"


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([TCP, f"connect(3<socket:[7]>, {V4}, 16) = 0"], [("net.connect", "connect", "1.2.3.4:443")]),
        ([f"connect(3<socket:[7]>, {V6}, 28) = -1 EINPROGRESS (x)"], [("net.connect", "connect", "[::1]:443")]),
        ([UDP, f"connect(3<socket:[7]>, {V4}, 16) = 0"], []),
        (
            [
                UDP,
                f"connect(3<socket:[7]>, {V4}, 16) = 0",
                "send(1) = 1",
                'sendto(3<socket:[7]>, "x", 1, 0, NULL, 0) = 1',
            ],
            [("net.connect", "send", "1.2.3.4:443")],
        ),
        ([UDP, f"sendto(3<socket:[7]>, {QUERY}, 25, 0, {DNS}, 16) = 25"], [("net.dns", "query", "abc.com")]),
        (
            [UDP, f"connect(3<socket:[7]>, {DNS}, 16) = 0", f"write(9<socket:[7]>, {QUERY}, 25) = 25"],
            [("net.dns", "query", "abc.com")],
        ),
        ([UDP, f'sendto(3<socket:[7]>, "junk", 4, 0, {DNS}, 16) = 4'], [("net.connect", "send", "9.9.9.9:53")]),
        (
            [TCP, f"connect(3<socket:[7]>, {V4}, 16) = 0", 'writev(3<socket:[7]>, [{iov_base="a", iov_len=1}], 1) = 1'],
            [("net.connect", "connect", "1.2.3.4:443"), ("net.connect", "send", "1.2.3.4:443")],
        ),
        (
            [TCP, f"connect(3<socket:[7]>, {V4}, 16) = 0", "sendfile(3<socket:[7]>, 4</etc/shadow>, NULL, 9) = 9"],
            [("net.connect", "connect", "1.2.3.4:443"), ("net.connect", "send", "1.2.3.4:443")],
        ),
        (
            [TCP, f"bind(3<socket:[7]>, {V4}, 16) = 0", "listen(3<socket:[7]>, 5) = 0"],
            [("net.listen", "listen", "1.2.3.4:443")],
        ),
        ([UDP, f"bind(3<socket:[7]>, {V4}, 16) = 0"], [("net.listen", "bind", "1.2.3.4:443")]),
        ([f"accept4(3<socket:[7]>, {V4}, [16], 0) = 4<socket:[8]>"], [("net.listen", "accept", "1.2.3.4:443")]),
        (
            [TCP, "accept(3<socket:[7]>, NULL, NULL) = 4<socket:[8]>", 'write(4<socket:[8]>, "x", 1) = 1'],
            [("net.listen", "accept", "AF_INET"), ("net.listen", "send", "AF_INET")],
        ),
        (
            ['connect(3<socket:[7]>, {sa_family=AF_UNIX, sun_path="/run/docker.sock"}, 18) = 0'],
            [("ipc.unix", "connect", "/run/docker.sock")],
        ),
        (['connect(3<socket:[7]>, {sa_family=AF_UNIX, sun_path=@"x"}, 4) = 0'], [("ipc.unix", "connect", "@x")]),
        (
            ['bind(3<socket:[7]>, {sa_family=AF_UNIX, sun_path="/run/x"}, 9) = 0', "listen(3<socket:[7]>, 5) = 0"],
            [("ipc.unix", "listen", "/run/x")],
        ),
        (
            ['sendto(3<socket:[7]>, "x", 1, 0, {sa_family=AF_UNIX, sun_path="/dev/log"}, 9) = 1'],
            [("ipc.unix", "send", "/dev/log")],
        ),
        (["socket(AF_PACKET, SOCK_RAW, 3) = 3<socket:[7]>"], [("net.connect", "raw socket", "AF_PACKET")]),
        (
            ["socket(AF_PACKET, SOCK_RAW, 3) = -1 EPERM (Operation not permitted)"],
            [("net.connect", "raw socket", "AF_PACKET")],
        ),
        (
            ["socket(AF_INET, SOCK_RAW|SOCK_CLOEXEC, IPPROTO_ICMP) = 3<socket:[7]>"],
            [("net.connect", "raw socket", "AF_INET")],
        ),
        (["connect(3<socket:[7]>, {sa_family=AF_NETLINK, nl_pid=0}, 12) = 0"], []),
        (["connect(3<socket:[7]>, {sa_family=AF_VSOCK, svm_cid=2}, 16) = 0"], [("net.connect", "connect", "AF_VSOCK")]),
        (['sendto(3<socket:[99]>, "x", 1, 0, NULL, 0) = 1'], []),
    ],
)
def test_a_socket_is_known_by_its_inode(calls: list[str], expected: list[tuple[str, str, str]]) -> None:
    assert tell(*calls) == expected


def test_each_name_of_a_sendmmsg_is_a_lookup() -> None:
    sent = [line for line in lines_of("dns") if "sendmmsg" in line]
    seen = observe(f"1638  1.0 connect(6<socket:[1058117]>, {DNS}, 16) = 0", *sent)
    assert [(str(each.capability), each.name) for each in seen[1:]] == [("net.dns", "example.com")] * 2


def test_what_was_sent_is_kept() -> None:
    seen = observe(
        f"1  1.0 {TCP}", f"1  1.1 connect(3<socket:[7]>, {V4}, 16) = 0", r'1  1.2 write(3<socket:[7]>, "a\0b", 3) = 3'
    )
    assert seen[-1].data == b"a\0b"


def test_sockets_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "MAX_SOCKETS", 2)
    followed = sockets.SocketTable()
    for inode in range(5):
        followed._put(inode, sockets.Socket())
    assert list(followed._known) == [3, 4]


def test_an_address_is_shown_in_one_text() -> None:
    assert show(Address("AF_INET6", "fe80::1", 80)) == "[fe80::1]:80"
    assert show(Address("AF_UNIX")) == ""
