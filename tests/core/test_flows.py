"""What a mark tells of itself."""

from proxy.core.flows import Mark


def test_a_mark_says_where_the_data_came_from_and_nothing_of_it() -> None:
    mark = Mark(
        agent="bot",
        call_id="c1",
        server="wiki",
        tool="read",
        labels=("private",),
        at=5.0,
        expires_at=9.0,
        shingles=b"x",
    )
    assert mark.source() == {"audit_id": "c1", "server": "wiki", "tool": "read", "labels": ["private"], "at": 5.0}
