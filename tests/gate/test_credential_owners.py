"""Credentials that were carried off."""

from proxy.gate.credential_owners import MAX_OWNERS, CredentialOwners, credential_tokens

TOKEN = "x7Kp2mQ9vR4sL8nW1bY6cT3fA0jH5dE"
HEX = "da39a3ee5e6b4b0d3255bfef95601890afd80709"


class Shared:
    """What two workers share, without a file."""

    def __init__(self):
        self.rows = {}

    def own_credential(self, digest, owner):
        return self.rows.setdefault(digest, owner)

    def new_credentials(self):
        return list(self.rows.items())


def bearer(token=TOKEN):
    return {"authorization": [f"Bearer {token}"]}


def test_the_first_site_owns_a_credential_and_its_other_hosts_may_have_it():
    owners = CredentialOwners(b"k")
    assert owners.learn("api.first.io", bearer())
    assert owners.learn("uploads.first.io", bearer())
    assert not owners.learn("api.second.net", bearer())
    assert owners.learn("api.second.net", bearer(HEX))


def test_it_is_found_in_other_parts_of_requests_to_others():
    owners = CredentialOwners(b"k")
    owners.learn("api.first.io", {"cookie": [f"theme=dark; sid={TOKEN}"], "x-api-key": [HEX]})
    texts = [("a", "nothing"), ("b", f"k={TOKEN}"), ("c", f"see {HEX}, there")]
    assert list(owners.moved("second.net", texts)) == ["b", "c"]
    assert list(owners.moved("api.first.io", texts)) == []


def test_workers_share_what_they_learned():
    shared = Shared()
    one, two = CredentialOwners(b"k", shared), CredentialOwners(b"k", shared)
    assert one.learn("api.first.io", bearer())
    assert list(two.moved("second.net", [("q", TOKEN)])) == ["q"]
    assert not two.learn("second.net", bearer())


def test_what_is_kept_is_no_credential_and_needs_the_key():
    shared = Shared()
    CredentialOwners(b"k", shared).learn("api.first.io", bearer())
    CredentialOwners(b"other", shared).learn("api.first.io", bearer())
    assert len(shared.rows) == 2
    assert TOKEN not in repr(shared.rows)


def test_words_and_short_values_are_no_credentials():
    assert list(credential_tokens({"cookie": ["consent=accepted-all-cookies; lang=en-GB; _ga=GA1.2.12.34"]})) == []
    assert list(credential_tokens(bearer("short"))) == []
    assert list(credential_tokens(bearer())) == [TOKEN]


def test_memory_is_bounded():
    owners = CredentialOwners(b"k")
    for i in range(MAX_OWNERS + 10):
        owners._remember(str(i), "x")
    assert len(owners._owners) == MAX_OWNERS
