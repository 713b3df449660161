"""What is covered: whoever could act for the agent."""

from __future__ import annotations

from proxy.confine.file_view import plan_file_view


def test_services_sockets_and_the_proxys_own_are_covered() -> None:
    files = plan_file_view(
        user=1000,
        listening=["/run/x.sock", "/home/me/y.sock"],
        runtime_dir="/run/elsewhere",
        kept=["/home/me/y.sock"],
        state_dirs=["/home/me/state"],
        given={"/home/me/state/ca/ca.pem": b"pem"},
        secrets=["/home/me/keys"],
        unwritable=["/home/me/policy.yaml"],
    )
    assert {"/run/dbus", "/run/user/1000", "/tmp/tmux-1000", "/run/elsewhere", "/home/me/state"} <= {*files.folders}
    assert {"/run/docker.sock", "/run/x.sock"} <= {*files.sockets}
    assert files.kept == ("/home/me/y.sock",)
    assert files.secrets == ("/home/me/keys",)
    assert files.unwritable == ("/home/me/policy.yaml", "/home/me/state")
    assert files.given == {"/home/me/state/ca/ca.pem": b"pem"}


def test_without_a_state_folder_none_is_covered() -> None:
    files = plan_file_view(user=0, listening=[])
    assert files.unwritable == ()
    assert "/run/user/0" in files.folders
