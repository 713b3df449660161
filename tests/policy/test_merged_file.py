"""A policy as one file, and what two differ in."""

from proxy.policy.load import load_sources, load_text
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


BOX = "version: 1\nsandbox: {'files*': {extends: [node], read: [$ROOTS], mode: shadow}}\n"
MORE = "version: 1\nsandbox: {'files*': {network: ['api.example.com:443']}, git: {extends: [git]}}\n"


def sandboxes(*texts):
    sources = [load_text(text, f"{at}.yaml", None) for at, text in enumerate(texts or ("version: 1\n",))]
    return merged_values(sources, with_defaults=True)


def test_sandboxes_of_several_files_are_those_of_one():
    alone, both = sandboxes(BOX), sandboxes(BOX, MORE)
    assert PolicyFile.model_validate(merged_values([load_text(BOX, "a.yaml", None)])).sandbox
    files = both["sandbox"]["files*"]
    # As for a server: what the files grant adds up, and the strictest mode holds.
    assert (files["read"], files["network"], files["mode"]) == (["$ROOTS"], ["api.example.com:443"], "enforce")
    found = [str(each) for each in differences(alone, both)]
    assert "+ sandbox git: enforce" in found
    assert "~ sandbox files*: mode shadow -> enforce" in found
    assert [str(each) for each in differences(both, sandboxes())] == [
        "- sandbox files*: enforce",
        "- sandbox git: enforce",
    ]
