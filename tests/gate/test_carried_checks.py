"""The checks of what a request's fields are."""

import base64

import pytest

from proxy.gate.carried_checks import MAX_FIELDS, check_fields, fields_of, has_login

ALL = ("metadata_url", "inner_url", "random_data", "encoded_text")
RANDOM = "x7Kp2mQ9vR4sL8nW1bY6cT3fA0jH5dEx7Kp2mQ9vR4sL8"
WORDS = base64.b64encode(b"the report is due on friday").decode()


def found(path="/", query=None, headers=None, body="", wanted=ALL):
    value = {"path": path, "query": query or {}, "headers": headers or {}, "body": body}
    return {each.detector.removeprefix("request.") for each in check_fields([*fields_of(value)], path, wanted)}


@pytest.mark.parametrize(
    "text",
    [
        "http://169.254.169.254/latest",
        "http%3A%2F%2F169.254.169.254",
        "http%253A%252F%252F169.254.169.254",
        "//169.254.169.254/",
        "http:\\\\169.254.169.254",
        "http://2852039166/",
        "http://0xa9fea9fe/",
        "http://[::ffff:a9fe:a9fe]/",
        "http://metadata.google.internal/",
        "http://example.org@169.254.169.254/",
        base64.b64encode(b"http://169.254.169.254/latest").decode(),
        "169.254.169.254",
        "gopher://169.254.169.254:80/_",
    ],
)
def test_a_relay_that_is_asked_for_metadata_is_found_in_every_spelling(text):
    assert "metadata-url" in found(query={"url": [text]})
    assert "metadata-url" in found(body={"a": [{"url": text}]})


def test_a_url_in_a_path_is_found():
    assert "metadata-url" in found("/http://169.254.169.254/x")
    assert "inner-url" in found("/proxy/http%3A%2F%2F127.0.0.1%3A80")
    assert found("/web/2020/https://www.example.org/") == set()


@pytest.mark.parametrize(
    "text", ["http://127.0.0.1:6379/", "http://localhost/", "http://10.1.2.3/", "file:///etc/passwd"]
)
def test_inner_urls_are_found_but_for_where_a_browser_is_sent_back_to(text):
    assert found(query={"target": [text]}) == {"inner-url"}
    if not text.startswith("file"):
        assert found(query={"redirect_uri": [text]}) == set()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("from", "10.0.0.1"),
        ("family", "Inter:wght@400"),
        ("page", "1"),
        ("baseUrl", "."),
        ("linkid", "830387"),
        ("text", "Opening http://localhost:3000 works."),
        ("path", "/MyLDP/BOOKS/LFS-BOOK-6.8-ru/index.html"),
        ("dep", "file:./my-package"),
    ],
)
def test_what_is_no_inner_url_is_not_taken_for_one(name, text):
    assert found(query={name: [text]}, body={name: text}, wanted=("inner_url", "metadata_url")) == set()


def test_random_and_encoded_data_are_found_in_every_part():
    for field in (
        {"path": f"/v1/{RANDOM}"},
        {"query": {"q": [RANDOM]}},
        {"headers": {"x-a": [RANDOM]}},
        {"body": RANDOM},
    ):
        assert found(**field) == {"random-data"}
    assert "encoded-text" in found(query={"q": [WORDS]})
    assert "encoded-text" in found(body={"a": b"the report is due".hex()})
    assert "encoded-text" in found(body="00ff" + RANDOM.encode().hex() + "00ff")
    assert "encoded-text" in found(query={"q": ["%252541%252549%252541"]})


def test_what_is_random_by_nature_is_left_alone():
    assert found(query={"cursor": [RANDOM], "code_challenge": [RANDOM], "X-Amz-Signature": [RANDOM]}) == set()
    assert found(body={"integrity": f"sha512-{RANDOM}", "img": "data:image/png;base64," + RANDOM}) == set()
    assert found("/commit/da39a3ee5e6b4b0d3255bfef95601890afd80709") == set()


def test_a_request_with_very_many_fields_is_looked_at_to_a_bound():
    value = {"path": "/", "query": {}, "headers": {}, "body": ["x"] * (2 * MAX_FIELDS)}
    assert len([*fields_of(value)]) <= MAX_FIELDS


def test_a_login_is_a_name_and_a_password_or_what_cannot_be_read():
    def basic(text):
        return {"authorization": ["Basic " + base64.b64encode(text.encode()).decode()]}

    assert has_login(basic("anna:summer"))
    assert has_login({"authorization": ["basic !"]})
    assert not has_login({"authorization": ["Bearer abc"]})
    assert not has_login({})
