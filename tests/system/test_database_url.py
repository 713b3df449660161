"""URLs of Postgres: which are taken, and that none is shown with its password."""

from __future__ import annotations

import pytest

from proxy.system.database_url import check_database_url, shown

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
