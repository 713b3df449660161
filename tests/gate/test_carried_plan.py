"""Which rule a finding breaks."""

from proxy.core.model import Finding, Redaction
from proxy.gate.carried_plan import plan_for

REPORT = Redaction("told", ("secrets",), frozenset({"request"}), "report")
URLS = Redaction("urls", ("secrets", "!secrets.jwt"), frozenset({"request", "url"}), "deny")
FOREIGN = Redaction("foreign", ("foreign_credential",), frozenset({"request", "credentials"}), "deny")
CHECK = Redaction("check", ("random_data",), frozenset({"request", "url"}), "deny")


def broken(finding, *rules, host="example.org"):
    found = plan_for(rules).broken([finding], host)
    return None if found is None else found[0].rule


def test_the_strictest_rule_that_a_finding_breaks_is_told():
    secret = Finding("secrets.stripe-key", "query.k[0]", "f")
    assert broken(secret, REPORT, URLS) == "urls"
    assert broken(Finding("secrets.stripe-key", "body.k", "f"), REPORT, URLS) == "told"
    assert broken(Finding("pii.card", "query.k", "f"), REPORT, URLS) is None


def test_an_exception_holds_for_its_rule_alone():
    jwt = Finding("secrets.jwt", "path", "f")
    assert broken(jwt, URLS) is None
    assert broken(jwt, URLS, REPORT) == "told"


def test_a_limit_that_was_met_counts_as_found():
    assert broken(Finding("limits.decoding", "path", "f"), URLS) == "urls"


def test_a_service_may_have_its_own_credentials_and_no_other_may():
    key = Finding("secrets.github-token", "credentials.authorization[0]", "f")
    assert broken(key, FOREIGN, host="api.github.com") is None
    assert broken(key, FOREIGN, host="api.github.com.example.org") == "foreign"
    assert broken(Finding("secrets.github-token", "query.t", "f"), URLS, host="uploads.github.com") is None


def test_a_check_counts_where_its_rule_looks():
    assert broken(Finding("request.random-data", "path[2]", ""), CHECK) == "check"
    assert broken(Finding("request.random-data", "body.d", ""), CHECK) is None
