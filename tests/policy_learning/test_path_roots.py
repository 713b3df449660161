import pytest

from proxy.policy_learning.path_roots import MAX_ROOTS, find_roots, is_too_wide


def test_several_children_stand_for_their_folder_and_two_for_themselves():
    assert find_roots(["/srv/app/a", "/srv/app/b", "/srv/app/c"]) == ["/srv/app"]
    assert find_roots(["/srv/app/a", "/srv/app/b"]) == ["/srv/app/a", "/srv/app/b"]


def test_folders_of_several_levels_are_one():
    assert find_roots([f"/srv/app/{name}/x" for name in "abc"]) == ["/srv/app"]


@pytest.mark.parametrize(
    "folder", ["/etc", "/home/me", "/home", "/tmp", "/usr/lib", "/home/me/.ssh", "/root", "/Users/a"]
)
def test_shared_folders_and_homes_are_never_opened(folder):
    paths = [f"{folder}/{name}" for name in "abcd"]
    assert is_too_wide(folder)
    assert find_roots(paths) == paths


def test_the_root_of_all_and_too_many_files_have_no_roots():
    assert find_roots(["/"]) is None
    assert find_roots([f"/{number}" for number in range(MAX_ROOTS + 1)]) is None


def test_a_root_inside_another_is_left_out():
    assert find_roots(["/srv/a", "/srv/a/b"]) == ["/srv/a"]
