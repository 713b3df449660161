"""Settings: which source wins, and what a wrong one is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from proxy.config import Settings, load_settings
from proxy.core.secret_variables import SECRET_VARIABLES
from proxy.errors import ConfigError


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(text: str, name: str = "interlock.yaml") -> Path:
    path = Path(name)
    path.write_text(text)
    return path


def told(flags: Any = None, environ: Any = None, config_file: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(flags, environ or {}, config_file)
    return str(caught.value)


def test_without_anything_the_defaults_hold() -> None:
    loaded = load_settings({}, {})
    assert loaded.settings.listen == "127.0.0.1:8080"
    assert loaded.settings.policy.name == "balanced.yaml"
    assert set(loaded.sources.values()) == {"default"}
    assert loaded.sources.keys() == Settings.model_fields.keys()


def test_flags_beat_the_environment_which_beats_the_file() -> None:
    written("listen: 1.1.1.1:1\nmode: transparent\nlog_level: error\n")
    environ = {"INTERLOCK_LISTEN": "2.2.2.2:2", "INTERLOCK_MODE": "regular", "OTHER": "x"}
    loaded = load_settings({"listen": "3.3.3.3:3", "mode": None}, environ)
    settings = loaded.settings
    assert (settings.listen, settings.mode, settings.log_level) == ("3.3.3.3:3", "regular", "error")
    assert loaded.sources["listen"] == "flag"
    assert loaded.sources["mode"] == "INTERLOCK_MODE"
    assert loaded.sources["log_level"] == "file interlock.yaml"
    assert loaded.sources["policy"] == "default"


def test_a_file_can_be_named_by_flag_before_environment() -> None:
    one, two = written("log_level: error\n", "one.yaml"), written("log_level: debug\n", "two.yaml")
    environ = {"INTERLOCK_CONFIG": str(two)}
    assert load_settings({}, environ).settings.log_level == "debug"
    assert load_settings({}, environ, one).settings.log_level == "error"


@pytest.mark.parametrize("text", ["", "# nothing\n"])
def test_an_empty_file_says_nothing(text: str) -> None:
    written(text)
    assert set(load_settings({}, {}).sources.values()) == {"default"}


def test_an_empty_variable_is_one_that_was_not_set() -> None:
    written("state_dir: here\nlarge_uploads: [a]\n")
    settings = load_settings({}, {"INTERLOCK_STATE_DIR": "", "INTERLOCK_LARGE_UPLOADS": ""}).settings
    assert settings.state_dir == Path("here")
    assert settings.large_uploads == ()


def test_a_home_folder_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    settings = load_settings({"policy": Path("~/p.yaml")}, {"INTERLOCK_STATE_DIR": "~/s"}).settings
    assert (settings.policy, settings.state_dir) == (Path("/home/me/p.yaml"), Path("/home/me/s"))


def test_the_state_folder_follows_the_desktop_standard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/var/x")
    assert load_settings({}, {}).settings.state_dir == Path("/var/x/interlock")


@pytest.mark.parametrize(("text", "hosts"), [("a.example", ("a.example",)), ("a, b  c,", ("a", "b", "c")), ("", ())])
def test_a_list_in_the_environment_is_split(text: str, hosts: tuple[str, ...]) -> None:
    assert load_settings({}, {"INTERLOCK_LARGE_UPLOADS": text}).settings.large_uploads == hosts


@pytest.mark.parametrize(("text", "size"), [("1024", 1024), ("64KiB", 65536), ("16 MB", 16_000_000), ("1GiB", 1 << 30)])
def test_sizes_have_units(text: str, size: int) -> None:
    assert load_settings({"body_limit": text}, {}).settings.body_limit == size


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("localhost:65535", ("localhost", 65535)),
        ("[::1]:8080", ("::1", 8080)),
    ],
)
def test_an_address_is_taken_apart(listen: str, address: tuple[str, int]) -> None:
    assert load_settings({"listen": listen}, {}).settings.listen_address == address
    assert load_settings({"operator_listen": listen}, {}).settings.operator_address == address


def test_operators_get_a_tcp_address_only_where_one_is_given() -> None:
    assert load_settings({}, {}).settings.operator_address is None
    with pytest.raises(ConfigError, match=r"operator_listen = '9000'.*HOST:PORT"):
        load_settings({}, {"INTERLOCK_OPERATOR_LISTEN": "9000"})


@pytest.mark.parametrize("variable", sorted(SECRET_VARIABLES))
def test_a_secret_variable_is_known_and_is_no_setting(variable: str) -> None:
    loaded = load_settings({}, {variable: "very-secret"})
    assert "very-secret" not in repr(loaded)
    with pytest.raises(ConfigError, match="there is no setting"):
        load_settings({}, {f"{variable}X": "very-secret"})


@pytest.mark.parametrize(
    "mode", ["regular", "transparent", "reverse:https://a.example", "reverse:http://[::1]:80/", "reverse:http://a:1"]
)
def test_a_mode_is_one_of_three(mode: str) -> None:
    assert load_settings({"mode": mode}, {}).settings.mode == mode


BAD = [
    ("listen", "8080", "HOST:PORT"),
    ("listen", "a:70000", "HOST:PORT"),
    ("listen", "::1:80", "HOST:PORT"),
    ("mode", "local", "reverse:URL"),
    ("mode", "reverse:ftp://x", "reverse:URL"),
    ("mode", "reverse:https://x/path", "reverse:URL"),
    ("agent_auth", "yes", "'optional' or 'required'"),
    ("default_agent", "x" * 65, "at most 64"),
    ("header_limit", "10", "1024"),
    ("body_limit", "lots", "16MiB"),
    ("body_limit", "5 parsecs", "16MiB"),
    ("body_limit", "-5", "16MiB"),
    ("header_timeout", "0", "greater than 0"),
    ("header_timeout", "nan", "86400"),
    ("idle_timeout", "100000", "86400"),
    ("body_timeout", "soon", "valid number"),
    ("connection_limit", "0", "greater than or equal to 1"),
    ("connection_limit", "1.5", "integer"),
    ("sampler_url", "llm.example.com", "/chat/completions"),
    ("sampler_url", "ftp://llm.example.com", "/chat/completions"),
    ("sampler_url", "https://key@llm.example.com/v1", "/chat/completions"),
    ("sampler_url", "https://llm.example.com/v1?key=1", "/chat/completions"),
    ("sampler_timeout", "0", "greater than 0"),
    ("log_level", "loud", "'debug'"),
    ("log_format", "xml", "'json'"),
]


@pytest.mark.parametrize(("name", "value", "way_out"), BAD)
@pytest.mark.parametrize("source", ["flag", "environment", "file"])
def test_a_wrong_setting_is_named_with_value_source_and_way_out(
    name: str, value: str, way_out: str, source: str
) -> None:
    if source == "flag":
        message, origin = told({name: value}), "flag"
    elif source == "environment":
        message, origin = told(environ={f"INTERLOCK_{name.upper()}": value}), f"INTERLOCK_{name.upper()}"
    else:
        message, origin = told(config_file=written(f"{name}: '{value}'\n", "c.yaml")), "file c.yaml"
    assert f"setting {name} = {value!r} (from {origin}): " in message
    assert way_out in message


@pytest.mark.parametrize(
    ("text", "way_out"),
    [
        ("listen:", "write text"),
        ("listen: [a]", "write text"),
        ("policy: {a: 1}", "write a path"),
        ("large_uploads: uploads.example.com", "write a list"),
        ("large_uploads: [1]", "write text"),
        ("connection_limit: many", "integer"),
    ],
)
def test_a_setting_of_another_type_is_told_what_to_write(text: str, way_out: str) -> None:
    message = told(config_file=written(text, "c.yaml"))
    assert message.startswith(f"setting {text.partition(':')[0]} = ")
    assert way_out in message


def test_every_wrong_setting_is_told_at_once() -> None:
    message = told({"listen": "x", "mode": "y"})
    assert [line.split()[1] for line in message.splitlines()] == ["listen", "mode"]


@pytest.mark.parametrize("name", ["lisen", "polcy", "state_dirs"])
def test_an_unknown_name_is_told_the_one_it_may_mean(name: str) -> None:
    meant = {"lisen": "listen", "polcy": "policy", "state_dirs": "state_dir"}[name]
    in_file = told(config_file=written(f"{name}: x\n", "c.yaml"))
    in_environment = told(environ={f"INTERLOCK_{name.upper()}": "x"})
    assert f"no setting {name!r} (from file c.yaml); did you mean {meant}?" in in_file
    assert f"(from environment variable INTERLOCK_{name.upper()}); did you mean {meant}?" in in_environment


def test_an_unknown_name_like_no_other_is_told_where_to_look() -> None:
    assert "interlock config show" in told(environ={"INTERLOCK_ZZZ": "1"})
    assert "interlock config show" in told(config_file=written("5: 1\n", "c.yaml"))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("- a\n", "must be a mapping"),
        ("just text", "must be a mapping"),
        ("listen: [", "cannot be read"),
        ("listen: a:1\nlisten: b:2\n", "cannot be read"),
    ],
)
def test_a_file_that_is_no_mapping_is_named(text: str, part: str) -> None:
    message = told(config_file=written(text, "c.yaml"))
    assert "'c.yaml'" in message
    assert part in message


def test_a_file_that_is_no_text_is_named() -> None:
    Path("c.yaml").write_bytes(b"\xff\xfe\x00")
    assert "'c.yaml' cannot be read" in told(config_file=Path("c.yaml"))


def test_a_folder_in_place_of_a_file_is_named() -> None:
    Path("c").mkdir()
    assert "'c' cannot be read" in told(config_file=Path("c"))


def test_a_named_file_must_exist() -> None:
    assert "'gone.yaml' does not exist" in told(config_file=Path("gone.yaml"))
    assert "INTERLOCK_CONFIG" in told(environ={"INTERLOCK_CONFIG": "gone.yaml"})


@pytest.mark.parametrize("source", ["flag", "environment", "file"])
def test_a_databases_url_is_a_secret_even_where_it_is_wrong(source: str) -> None:
    wrong = "postgresql://u:s3/cret@h/db"
    if source == "flag":
        message = told({"database_url": wrong})
    elif source == "environment":
        message = told(environ={"INTERLOCK_DATABASE_URL": wrong})
    else:
        message = told(config_file=written(f"database_url: {wrong}\n", "c.yaml"))
    assert message.startswith("setting database_url = *** (from ")
    assert "write postgresql://" in message
    assert "cret" not in message


def test_a_databases_password_is_shown_nowhere() -> None:
    settings = load_settings({"database_url": "postgresql://u:s3cret@h/db"}, {}).settings
    assert settings.postgres == "postgresql://u:s3cret@h/db"
    assert settings.model_dump(mode="json")["database_url"] == "postgresql://u:***@h/db"
    for shown in (repr(settings), str(settings), str(settings.model_dump()), settings.model_dump_json()):
        assert "s3cret" not in shown


def test_settings_cannot_be_changed() -> None:
    settings = load_settings({}, {}).settings
    with pytest.raises(ValidationError):
        settings.listen = "x:1"  # type: ignore[misc]


def test_every_setting_says_what_it_is() -> None:
    assert all(info.description for info in Settings.model_fields.values())


def test_secrets_of_the_environment_are_known_and_are_no_settings() -> None:
    environ = {"INTERLOCK_COMMIT_SECRET": "hunter2", "INTERLOCK_SAMPLER_KEY": "hunter3"}
    loaded = load_settings({}, environ)
    assert set(loaded.sources.values()) == {"default"}
    assert "hunter" not in loaded.settings.model_dump_json()


@pytest.mark.parametrize("name", ["commit_secret", "sampler_key"])
def test_a_secret_in_the_file_is_told_where_it_belongs(name: str) -> None:
    message = told(config_file=written(f"{name}: hunter2\n", "c.yaml"))
    assert f"set the environment variable INTERLOCK_{name.upper()}" in message
    assert "hunter2" not in message


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:11434/v1", "https://llm.example.com", "https://[::1]:8000/v1/", "http://vllm/a/b_c%20d"]
)
def test_a_samplers_url_is_what_comes_before_the_path_of_the_api(url: str) -> None:
    assert load_settings({"sampler_url": url}, {}).settings.sampler_url == url.rstrip("/")


def test_a_database_url_may_come_from_a_file_and_is_shown_as_coming_from_there() -> None:
    secret = written("postgresql://u:s3cret@h/db\n", "secret")
    loaded = load_settings({}, {"INTERLOCK_DATABASE_URL_FILE": str(secret)})
    assert loaded.settings.postgres == "postgresql://u:s3cret@h/db"
    assert loaded.sources["database_url"] == "INTERLOCK_DATABASE_URL_FILE"
    flagged = load_settings({"database_url": "postgresql://other/db"}, {"INTERLOCK_DATABASE_URL_FILE": str(secret)})
    assert flagged.settings.postgres == "postgresql://other/db"


def test_a_file_of_a_database_url_that_gives_none_never_means_that_there_is_none() -> None:
    environ = {"INTERLOCK_DATABASE_URL_FILE": "secret"}
    assert "): No such file" in told(environ=environ)
    written(" \n", "secret")
    assert "is empty; write the database's URL" in told(environ=environ)
    Path("secret").write_bytes(b"\xff\xfe")
    assert "): it is not text" in told(environ=environ)
    written("s3cret", "secret")
    assert "setting database_url = *** (from INTERLOCK_DATABASE_URL_FILE)" in told(environ=environ)
    assert "are both set" in told(environ=environ | {"INTERLOCK_DATABASE_URL": "postgresql://h/db"})
