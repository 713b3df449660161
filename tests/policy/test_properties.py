"""Whatever a denied value is re-spelt to, it stays denied; nothing makes the engine raise."""

import json
from urllib.parse import quote

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.model import Call, Outcome
from proxy.policy.decide import CompiledPolicy
from proxy.policy.paths import read_path
from proxy.policy.rules import PolicyFile
from proxy.policy.shell import parse_script

INVISIBLE = "\u200b\u200d\u2060\ufeff\u00ad\u202e\U000e0041"


def policy(when, action="deny"):
    rule = {"id": "r", "action": action, "when": when}
    content = PolicyFile.model_validate({"version": 1, "rules": [rule]})
    return CompiledPolicy(content.rules, default="allow" if action == "deny" else "deny")


def decide(made, arguments):
    return made.decide(Call("tools/call", "s", "a", "t", arguments))


PATHS = policy({"arg": "value", "path_under": "/etc"})
HOSTS = policy({"arg": "value", "host_in": ["169.254.169.254", "evil.com"]})
COMMANDS = policy({"arg": "value", "command": "curl"})
TEXTS = policy({"arg": "value", "contains": "drop table"})
WORKSPACE = policy({"arg": "value", "path_under": "/workspace"}, action="allow")


def percent(text):
    return quote(text, safe="")


def percent_all(text):
    return "".join(f"%{byte:02x}" for byte in text.encode())


def fullwidth(text):
    return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)


def in_json(text):
    return json.dumps(text)


def in_list(text):
    return json.dumps([text])


def in_object(text):
    return json.dumps({"a": {"b": text}})


def padded(text):
    return f" {text} "


def swap(text):
    return text.swapcase()


DECODABLE = [percent, percent_all, fullwidth, padded, swap]
WRAPPING = [in_json, in_list, in_object]


@st.composite
def respelt(draw, values):
    text = draw(st.sampled_from(values))
    for step in draw(st.lists(st.sampled_from(DECODABLE), max_size=4)):
        text = step(text)
    if draw(st.booleans()):
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(st.sampled_from(INVISIBLE)) + text[place:]
    for step in draw(st.lists(st.sampled_from(WRAPPING), max_size=2)):
        text = step(text)
    return text


@given(respelt(["/etc/passwd", "/etc", "/tmp/../etc/shadow", "etc/passwd", "file:///etc/passwd"]))
@settings(max_examples=300, deadline=None)
def test_a_denied_path_stays_denied_however_it_is_spelt(value):
    assert decide(PATHS, {"value": value}).outcome is Outcome.DENY


@given(respelt(["http://169.254.169.254/latest", "169.254.169.254", "https://evil.com/x", "evil.com"]))
@settings(max_examples=300, deadline=None)
def test_a_denied_host_stays_denied_however_it_is_spelt(value):
    assert decide(HOSTS, {"value": value}).outcome is Outcome.DENY


@given(respelt(["drop table x", "x; DROP TABLE y"]))
@settings(max_examples=300, deadline=None)
def test_a_denied_text_stays_denied_however_it_is_spelt(value):
    assert decide(TEXTS, {"value": value}).outcome is Outcome.DENY


PARTS = st.lists(st.sampled_from(["a", "..", ".", "", "proc", "self", "root", "var", "run"]), max_size=6)


@given(PARTS, st.sampled_from(["/", "\\", "//", "/./", "%2f", "%5c"]))
@settings(max_examples=300, deadline=None)
def test_a_path_that_climbs_to_the_root_and_into_etc_is_denied(parts, separator):
    climb = [".."] * (len(parts) + 1)
    value = separator.join(["", *parts, *climb, "etc", "passwd"])
    assert decide(PATHS, {"value": value}).outcome is Outcome.DENY


@given(PARTS)
@settings(max_examples=300, deadline=None)
def test_an_allowed_path_never_leaves_its_root(parts):
    value = "/workspace/" + "/".join(parts)
    inside = True
    depth = 0
    for part in parts:
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        inside = inside and depth >= 0
    if not inside:
        decision = decide(WORKSPACE, {"value": value})
        left = read_path(value).exact
        assert decision.outcome is Outcome.DENY or all(p.startswith("/workspace/") for p in left)


SHELL = st.sampled_from(
    [
        "{}",
        "ls; {}",
        "ls && {}",
        "ls | {}",
        "({})",
        "{{ {}; }}",
        "echo $({})",
        "echo `{}`",
        'echo "$({})"',
        "sudo {}",
        "env A=1 {}",
        "nohup {} &",
        "bash -c '{}'",
        'sh -c "{}"',
        "time {}",
        "xargs {}",
        "if true; then {}; fi",
        "! {}",
        "timeout 5 {}",
        "cat <({})",
        "{} > /tmp/x",
        "2>/dev/null {}",
        "A=1 {}",
        "ls\n{}",
        'eval "{}"',
        "nice -n 3 {}",
    ]
)
SPLICES = st.sampled_from(["curl", 'cu""rl', "/usr/bin/curl", "\\curl", "c\\url", "CURL", "$'c\\x75rl'"])


@given(SPLICES, st.lists(SHELL, max_size=3))
@settings(max_examples=300, deadline=None)
def test_a_denied_program_stays_denied_however_it_is_wrapped(program, wrappers):
    value = f"{program} http://x"
    for wrapper in wrappers:
        if ("'" in value and "'" in wrapper) or ('"' in value and '"' in wrapper) or ("`" in value and "`" in wrapper):
            continue
        value = wrapper.format(value)
    assert decide(COMMANDS, {"value": value}).outcome is Outcome.DENY


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
EVERYTHING = CompiledPolicy(
    PolicyFile.model_validate(
        {
            "version": 1,
            "rules": [
                {"id": f"r-{name}", "action": "deny", "when": {"arg": "**", name: operand}}
                for name, operand in {
                    "equals": "\x00impossible",
                    "starts_with": "\x00impossible",
                    "matches": "\x00impossible",
                    "gt": 1e300,
                    "path_under": "/impossible/root",
                    "host_in": "impossible.invalid",
                    "ip_class": "multicast",
                    "cidr": "203.0.113.0/24",
                    "url_scheme": "impossible",
                    "command": "impossible",
                }.items()
            ],
        }
    ).rules,
    default="allow",
)


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=4))
@settings(max_examples=300, deadline=None)
def test_no_arguments_make_a_rule_raise(arguments):
    decision = decide(EVERYTHING, arguments)
    assert decision.reason in ("default_allow", "policy_denied", "ambiguous_value", "wrong_type")


@given(st.text(alphabet="ab $(){}[]<>|&;'\"`\\\n#*?~=!-", max_size=60))
@settings(max_examples=500, deadline=None)
def test_no_command_line_makes_the_reader_raise(text):
    script = parse_script(text)
    assert script.problem is None or script.problem
