"""URLs of Postgres: which are taken, and that none is shown with its password."""

from __future__ import annotations

import pytest

from proxy.system.database_url import check_database_url, shown, split_system_roots, unprotected_host

GOOD = [
    ("postgresql://h/db", "postgresql://h/db"),
    ("postgres://u@h:5433/db", "postgres://u@h:5433/db"),
    ("postgresql://u:s3cret@h/db", "postgresql://u:***@h/db"),
    ("postgresql://u:s3%40cret%2F@h/db", "postgresql://u:***@h/db"),
    ("postgresql://u:s3@cret@h/db", "postgresql://u:***@h/db"),
    ("postgresql://u:@h/db", "postgresql://u:***@h/db"),
    ("postgresql://:s3cret@h/db", "postgresql://:***@h/db"),
    ("postgresql://u:s3cret@[::1]:5432/db", "postgresql://u:***@[::1]:5432/db"),
    ("postgresql://u:s3cret@a:1,b:2/db", "postgresql://u:***@a:1,b:2/db"),
    ("postgresql:///db?host=/run/pg&password=s3cret", "postgresql:///db?host=/run/pg&password=***"),
    ("postgresql://h/db?sslPassword=s3cret&sslmode=require", "postgresql://h/db?sslPassword=***&sslmode=require"),
]
BAD = [
    "",
    "h/db",
    "mysql://u:s3cret@h/db",
    "postgresql://u:s3/cret@h/db",
    "postgresql://u:s3?cret@h/db",
    "postgresql://u:s3#cret@h/db",
    "postgresql://h/db#s3cret",
    "postgresql://u:s3cret@h:port/db",
    "postgresql://u:s3cret@h:123456/db",
    "postgresql://u:s3cret@[::1/db",
    "postgresql://u:s3cret\0@h/db",
    "postgresql://u:s3cret@h/db\n",
]


@pytest.mark.parametrize(("url", "safe"), GOOD)
def test_a_good_url_is_taken_and_shown_without_its_password(url: str, safe: str) -> None:
    assert check_database_url(url) == url
    assert shown(url) == safe


@pytest.mark.parametrize("url", BAD, ids=ascii)
def test_a_bad_url_is_told_what_to_write_and_never_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="write postgresql://USER:PASSWORD@HOST:5432/DATABASE") as caught:
        check_database_url(url)
    assert "s3" not in str(caught.value)
    assert shown(url) == "***"


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("postgresql://u@db.example.com/x", "db.example.com"),
        ("postgresql://u@db.example.com:5432/x?sslmode=prefer", "db.example.com:5432"),
        ("postgresql://u@/x?host=db.example.com&sslmode=disable", "db.example.com"),
        ("postgresql://u@localhost,10.0.0.7:5432/x", "10.0.0.7:5432"),
        ("postgresql://u@[2001:db8::1]:5432/x", "[2001:db8::1]:5432"),
        ("postgresql://u@db.example.com/x?sslmode=require", None),
        ("postgresql://u@db.example.com/x?sslmode=verify-full&sslrootcert=/ca.pem", None),
        ("postgresql://u@db.example.com/x?sslrootcert=system", None),
        ("postgresql://u@localhost/x", None),
        ("postgresql://u@127.0.0.1:5432/x", None),
        ("postgresql://u@[::1]/x", None),
        ("postgresql://u@/x?host=/run/postgresql", None),
        ("postgresql:///x", None),
    ],
)
def test_a_remote_host_without_tls_is_told(url: str, host: str | None) -> None:
    assert unprotected_host(url) == host


def test_the_systems_roots_are_taken_out_of_the_url_and_check_the_name() -> None:
    url = "postgresql://u@h/x?host=/a&sslrootcert=system&sslmode=verify-full"
    assert split_system_roots(url) == ("postgresql://u@h/x?host=/a", True)
    assert split_system_roots("postgresql://u@h/x?sslrootcert=/ca.pem") == (
        "postgresql://u@h/x?sslrootcert=/ca.pem",
        False,
    )
    with pytest.raises(ValueError, match="needs sslmode=verify-full"):
        split_system_roots("postgresql://u@h/x?sslrootcert=system&sslmode=require")
