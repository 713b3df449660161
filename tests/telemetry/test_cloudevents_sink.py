from __future__ import annotations

import json
from typing import Literal

import pytest

from proxy.sinks.telemetry_settings import CloudEventsSettings
from proxy.telemetry.cloudevents_sink import open_sink
from tests.support.otlp_receiver import Receiver
from tests.support.telemetry_events import PLAIN, entry
from tests.telemetry.test_cloudevents import CHECK

MANY = [entry(fields, number) for number, fields in enumerate(PLAIN.values(), 1)]


@pytest.mark.parametrize("mode", ["batch", "structured"])
async def test_events_are_posted_as_the_http_binding_says(
    collector: Receiver, mode: Literal["batch", "structured"]
) -> None:
    made = open_sink(CloudEventsSettings(kind="cloudevents", url=collector.url, mode=mode))
    assert (await made.write(MANY)).kept == len(MANY)
    await made.close()
    kinds = {one.headers["content-type"].partition(";")[0] for one in collector.requests}
    bodies = [json.loads(one.body) for one in collector.requests]
    if mode == "batch":
        assert kinds == {"application/cloudevents-batch+json"}
        (bodies,) = bodies
    else:
        assert kinds == {"application/cloudevents+json"}
    assert [[*CHECK.iter_errors(one)] for one in bodies] == [[]] * len(MANY)
    assert [one["id"] for one in bodies] == [fields["event_id"] for fields in PLAIN.values()]
