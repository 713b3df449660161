"""What may be written where, from the schema of policy files."""

from __future__ import annotations

from proxy.console.schema_completion import completion_table
from proxy.policy.rules import PolicyFile

TABLE = completion_table(PolicyFile.model_json_schema(by_alias=True))


def test_every_field_of_a_policy_file_is_there_with_its_description() -> None:
    assert set(TABLE["PolicyFile"]) == {field.alias or name for name, field in PolicyFile.model_fields.items()}
    assert TABLE["PolicyFile"]["rules"]["about"]


def test_a_list_of_several_kinds_leads_to_all_of_them() -> None:
    kinds = {"AllowRule", "DenyRule", "ExternalRule", "ObservedRule", "RedactRule", "TwoPhaseRule"}
    assert set(TABLE["PolicyFile"]["rules"]["objects"]) == kinds
    assert {"All", "Condition"} <= set(TABLE["DenyRule"]["when"]["objects"])


def test_words_are_offered_through_references_and_lists() -> None:
    assert TABLE["PolicyFile"]["default"]["words"] == ["allow", "deny"]
    assert TABLE["DenyRule"]["mode"]["words"] == ["enforce", "shadow"]
    assert TABLE["DenyRule"]["action"]["words"] == ["deny"]
    assert "arguments" in TABLE["RedactRule"]["on"]["words"]
    assert TABLE["Annotations"]["readOnlyHint"]["words"] == ["true", "false"]


def test_a_schema_that_refers_to_itself_ends() -> None:
    again = {"$ref": "#/$defs/Again"}
    made = completion_table({"properties": {"a": again}, "$defs": {"Again": {"anyOf": [again, {"enum": ["x"]}]}}})
    assert made["PolicyFile"]["a"]["words"] == ["x"]
