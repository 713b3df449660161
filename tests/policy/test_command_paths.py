"""The paths and hosts of command lines; tests/cases/command_paths.yaml has the adversarial ones."""

import pytest

from proxy.policy.command_paths import MAX_PATHS, CommandPath, read_argv_paths, read_command_paths


def texts(line):
    return [path.text for path in read_command_paths(line).paths]


@pytest.mark.parametrize(
    ("line", "paths"),
    [
        ("cat a /b", [CommandPath("a"), CommandPath("/b")]),
        ("cd /a && cat b", [CommandPath("/a"), CommandPath("b", "/a"), CommandPath("b", None, sure=False)]),
        ("cd /a; cat b", [CommandPath("/a"), CommandPath("b", "/a"), CommandPath("b")]),
        ("cat < a > b", [CommandPath("a"), CommandPath("b", write=True)]),
        ("ls -la --color=never", [CommandPath("never")]),
        ("x=a; cat $x/b", [CommandPath("a"), CommandPath("a/b")]),
        ("echo a", []),
        ("tar c /a", [CommandPath("c"), CommandPath("/a"), CommandPath("/a/**")]),
    ],
)
def test_a_word_is_a_path_and_says_from_where(line, paths):
    assert list(read_command_paths(line).paths) == paths


@pytest.mark.parametrize("line", ["ls $X", "$X a", "cat a/$X", "python3 -c 'x'", "curl $X", "cat x | sh"])
def test_what_only_the_machine_knows_leaves_the_answer_incomplete(line):
    found = read_command_paths(line)
    assert not found.complete
    assert found.problem is None


def test_a_word_that_is_wholly_unknown_is_no_path():
    assert texts("ls $X") == []


@pytest.mark.parametrize("line", ["cat 'a", "cat $(echo YQ== | base64 -d)", "cat a\0b"])
def test_what_cannot_be_parsed_or_is_computed_in_the_line_is_a_problem(line):
    assert read_command_paths(line).problem is not None


def test_more_paths_than_the_bound_are_a_problem():
    assert read_command_paths("cat " + " ".join(f"a{i}" for i in range(MAX_PATHS + 1))).problem is not None


def test_hosts_are_urls_operands_of_network_programs_and_devices():
    hosts = read_command_paths("curl https://a.test/x; nc b.test 80 < /dev/tcp/c.test/80; ls d.test").hosts
    assert {"https://a.test/x", "b.test", "c.test"} <= set(hosts)
    assert "d.test" not in hosts


def test_an_argv_is_read_as_the_line_that_it_makes():
    assert ("/b", True) in {(path.text, path.sure) for path in read_argv_paths(["sh", "-c", "cat /b"]).paths}
