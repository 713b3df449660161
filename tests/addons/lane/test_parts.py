from addons.lane.parts import LaneCall, Phase


def test_a_call_begins_with_nothing_sent_and_nothing_received() -> None:
    call = LaneCall(template=None, key=None, judged=None, raw=b"head and body", body=b"body")  # type: ignore[arg-type]
    assert (call.verdict, call.sent, call.received) == (None, b"", b"")


def test_only_an_idle_lane_takes_a_request() -> None:
    # Whoever adds a phase has to say in `Lane.take` what becomes of bytes that come in it.
    assert [phase.name for phase in Phase] == [
        *("IDLE", "READING", "DECIDING", "WAITING", "STORING", "STREAMING", "HANDING_OVER")
    ]
