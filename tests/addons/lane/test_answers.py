import pytest

from addons.lane.answers import Reading, read_answer, write_answer

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
JSON = HEAD + b'Content-Length: 7\r\n\r\n{"a":1}'
CHUNKED = HEAD + b'Transfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\n4\r\n":1}\r\n0\r\n\r\n'
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "reading"),
    [
        (b"", Reading.MORE),
        (HEAD, Reading.MORE),
        (JSON[:-1], Reading.MORE),
        (JSON, Reading.WHOLE),
        (JSON + b"H", Reading.ODD),
        (CHUNKED[:-1], Reading.MORE),
        (CHUNKED, Reading.WHOLE),
        (CHUNKED + b"H", Reading.ODD),
        (CHUNKED.replace(b"3\r\n{", b"z\r\n{"), Reading.ODD),
        (STREAM, Reading.STREAM),
        (STREAM + b"1\r\nx", Reading.STREAM),
        (HEAD + b"Content-Length: 0\r\n\r\n", Reading.ODD),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Reading.ODD),
        (HEAD + b"Content-Length: 9999\r\n\r\n", Reading.ODD),
        (HEAD.replace(b"json", b"xml") + b"Content-Length: 7\r\n\r\n", Reading.ODD),
        (STREAM.replace(b"Transfer-Encoding: chunked", b"Content-Length: 7"), Reading.ODD),
        (b"HTTP/1.1 200 OK\nContent", Reading.ODD),
        (b"HTTP/1.1 200  OK\r\n" + JSON.partition(b"\r\n")[2], Reading.ODD),
        (b"HTTP/1.1 500 No\r\n" + JSON.partition(b"\r\n")[2], Reading.ODD),
    ],
)
def test_what_an_answer_is_so_far(data: bytes, reading: Reading) -> None:
    assert read_answer(data, 1000).reading is reading


@pytest.mark.parametrize("data", [JSON, CHUNKED])
def test_a_whole_answer_is_passed_on_as_it_is(data: bytes) -> None:
    answer = read_answer(data, 1000)
    assert answer.body == b'{"a":1}'
    written = write_answer(data, answer, None)
    assert read_answer(written, 1000).body == answer.body
    assert written == data or b"chunked" in data


@pytest.mark.parametrize("data", [JSON, CHUNKED])
@pytest.mark.parametrize(("payloads", "body"), [([b"{}"], b"{}"), ([b"1", b"2"], b"[1,2]")])
def test_a_changed_answer_has_a_length_of_its_own(data: bytes, payloads: list[bytes], body: bytes) -> None:
    written = write_answer(data, read_answer(data, 1000), payloads)
    answer = read_answer(written, 1000)
    assert (answer.reading, answer.body) == (Reading.WHOLE, body)
    assert answer.head is not None
    assert answer.head.length == len(body)
