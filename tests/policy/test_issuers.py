"""Whose credentials are whose."""

from proxy.policy.issuers import issuer_of, owner_of
from proxy.redact import builtin


def test_the_sites_of_one_owner_are_one():
    assert owner_of("raw.githubusercontent.com") == owner_of("api.github.com") == "github.com"
    assert owner_of("oauth2.googleapis.com") == owner_of("accounts.google.com")
    assert owner_of("a.example.org") == "example.org"
    assert owner_of("github.com.example.org") == "example.org"


def test_a_services_key_has_its_issuer_and_a_password_none():
    assert issuer_of("secrets.github-token") == owner_of("github.com")
    assert issuer_of("shape.aws") == issuer_of("secrets.aws-access-key") == owner_of("s3.amazonaws.com")
    assert issuer_of("secrets.password-field") is issuer_of("secrets.jwt") is issuer_of("secrets.gitlab-token") is None


def test_every_issuer_is_of_a_detector_that_exists():
    from proxy.policy import issuers

    names = list(builtin().names())
    assert [start for start in issuers._ISSUED if not any(name.startswith(start) for name in names)] == []
