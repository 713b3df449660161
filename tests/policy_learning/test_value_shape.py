from proxy.policy_learning.value_shape import MAX_DEPTH, MAX_KEYS, Shape


def shape(*values):
    found = Shape()
    for value in values:
        found.add(value)
    return found


def test_numbers_are_a_range_and_booleans_what_was_seen():
    found = shape({"n": 3, "b": True}, {"n": -2.5})
    assert (found.members["n"].low, found.members["n"].high, found.members["n"].whole_numbers) == (-2.5, 3, False)
    assert found.members["b"].booleans == {True}
    assert (found.count, found.members["b"].count) == (2, 1)


def test_members_without_end_or_with_masked_names_are_open():
    assert shape({f"k{number}": 1 for number in range(MAX_KEYS + 1)}).open_keys
    assert shape({"[secret:api-key:aa]": 1}).open_keys
    assert not shape({"a": 1}).open_keys


def test_depth_is_bounded():
    value = {}
    for _ in range(MAX_DEPTH + 3):
        value = {"a": value}
    found = shape(value)
    for _ in range(MAX_DEPTH + 1):
        found = found.members["a"]
    assert found.too_deep
    assert not found.members
