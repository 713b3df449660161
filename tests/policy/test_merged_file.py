"""A policy as one file, and what two differ in."""

from proxy.policy.load import load_sources
from proxy.policy.merged_file import differences, merged_values
from proxy.policy.rules import PolicyFile
from proxy.system.package_data import PROFILES, profile_file


def whole(name):
    return merged_values(load_sources(profile_file(name)), with_defaults=True)


def test_each_profile_is_one_valid_file_that_does_the_same():
    for name in PROFILES:
        values = merged_values(load_sources(profile_file(name)))
        assert PolicyFile.model_validate(values).rules
        assert list(differences(whole(name), whole(name))) == []


def test_a_rule_more_and_a_setting_that_changed_are_told_in_words():
    found = [str(each) for each in differences(whole("balanced"), whole("strict"))]
    assert "~ egress: loopback allow -> deny" in found
    assert any(line.startswith("+ egress rule strict-content: deny, ") for line in found)
    assert not any(line.startswith("-") for line in found)


def test_from_watch_to_strict_every_rule_that_denies_changes_its_mode():
    found = {
        (each.name, each.field): (each.before, each.after) for each in differences(whole("watch"), whole("strict"))
    }
    assert found["default-cloud-metadata", "mode"] == ("shadow", "enforce")
    assert found["", "metadata"] == ("report", "deny")
    assert found["default-secrets-out", "redact"] == ("report", "mask")
