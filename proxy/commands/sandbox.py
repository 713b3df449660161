"""`interlock sandbox`: learns profiles of local servers, compares them and shows what they permit."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import shutil
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from proxy.commands.options import AsJson, ConfigFile, StateDir, state_folder, takes, trail_settings
from proxy.commands.probe import HowToProbe, how_to_probe, prepare, probe_local
from proxy.commands.terminal import count, print_json_lines, print_note, printable_lines
from proxy.commands.time_format import parse_time
from proxy.config import Settings, load_settings
from proxy.errors import ConfigError
from proxy.learn.compare import Difference, compare
from proxy.learn.generalise import Places
from proxy.learn.learned import LearnedProfile, Line, learn
from proxy.learn.profile_text import comment, profile_text, section
from proxy.sandbox.profile import PRESETS, SandboxProfile
from proxy.sandbox.profile_files import find_profile, load_profile, parse_profile, parse_text, preset_file, resolve
from proxy.sandbox.server_package import package_of, roots_of

app = typer.Typer(help="Learn, compare and show the sandbox profiles of local servers.", no_args_is_help=True)
MORE = 3
MAX_EVENTS = 200_000
Command = Annotated[
    list[str] | None, typer.Argument(metavar="[-- COMMAND]", help="The server's command and arguments, after --.")
]
LISTS = ("read", "write", "hide", "secrets", "env", "sockets", "exec")


@app.command("learn", epilog="Example:  interlock sandbox learn --from probe -o files.yaml -- uvx mcp-server-time")
@takes(how_to_probe)
def learn_profile(
    how: HowToProbe,
    command: Command = None,
    source: Annotated[
        Literal["probe", "trail"], typer.Option("--from", help="Probe the server now, or read the audit trail.")
    ] = "probe",
    server: Annotated[str | None, typer.Option(help="The server's name in the trail.")] = None,
    since: Annotated[str | None, typer.Option(help="Only what the trail has since then: 1h, 7d, a date.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File to write; default: stdout.")] = None,
    bind_arguments: Annotated[  # noqa: FBT002
        bool, typer.Option("--bind-arguments", help="Bind tools that only touch what their arguments name to those.")
    ] = False,
    database_url: Annotated[str | None, typer.Option("--database-url", show_default=False, help="The store.")] = None,
    state_dir: StateDir = None,
    config: ConfigFile = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Write a profile that permits what a server was seen to do.

    Every line has its evidence as a comment. What a probe blames, and every secret, is left out
    and listed at the end. Read the profile before you use it.
    """
    if source == "trail":
        settings = trail_settings(database_url, state_dir, config)
        learned = _from_trail(settings, server, since, command or [], how, bind=bind_arguments)
    else:
        settings = load_settings({"state_dir": state_dir}, config_file=config).settings
        learned = _from_probe(settings, how, _required(command), bind=bind_arguments)
    text = _checked(profile_text(learned, dt.datetime.now(dt.UTC).date().isoformat()))
    if output is not None:
        _write(output, text)
    if as_json:
        print_json_lines([_learned_data(learned, text, output)])
    elif output is None:
        typer.echo(printable_lines(text), nl=False)
    else:
        told = f"{count(_count(learned), 'line')}, {count(len(learned.left_out), 'act')} left out"
        print_note(f"Wrote {output}: {told}")


@app.command("diff", epilog="Example:  interlock sandbox diff --ci old.yaml -- npx -y my-server@2.0.0")
@takes(how_to_probe)
def diff(
    how: HowToProbe,
    old: Annotated[str, typer.Argument(metavar="OLD", help="A profile: a preset's name, or a file.")],
    new: Annotated[
        list[str] | None, typer.Argument(metavar="NEW | -- COMMAND", help="Another profile; or a server to probe now.")
    ] = None,
    ci: Annotated[bool, typer.Option("--ci", help="Exit code 3 if the new one needs more.")] = False,  # noqa: FBT002
    state_dir: StateDir = None,
    config: ConfigFile = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Show what a new profile, or a new version of a server, needs that the old profile does not permit.

    With one word behind OLD that is a profile, the two are compared. Otherwise the words are a
    server's command, which is probed.

    Exit code: 0, or with --ci 3 if more is needed.
    """
    before = load_profile(old)
    words = _required(new)
    after = (
        load_profile(words[0]) if len(words) == 1 and _is_profile(words[0]) else _probed(state_dir, config, how, words)
    )
    found = compare(before, after)
    if as_json:
        print_json_lines([_difference_data(found)])
    else:
        _print_differences(found)
    if ci and any(each.more for each in found):
        raise typer.Exit(MORE)


@app.command("show", epilog="Example:  interlock sandbox show node")
@takes(state_folder)
def show(
    _folder: Path,
    name: Annotated[str, typer.Argument(help="A preset, a file, or a server's name in the policy.")],
    policy: Annotated[Path | None, typer.Option(help="The policy whose section sandbox: is asked.")] = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Print a profile as it is in force: with all that it extends, and where each line comes from."""
    own, folder = _find(name, policy)
    whole = resolve(own, folder)
    if as_json:
        print_json_lines([{"name": name, "profile": whole.model_dump(mode="json", exclude_none=True)}])
        return
    typer.echo(printable_lines("\n".join(_shown(name, own, whole, folder)) + "\n"), nl=False)


def _required(words: list[str] | None) -> list[str]:
    if not words:
        raise ConfigError("give the server's command after --, like -- uvx mcp-server-time")
    return words


def _is_profile(word: str) -> bool:
    return word in PRESETS or word.endswith((".yaml", ".yml"))


def _presets() -> dict[str, SandboxProfile]:
    return {name: parse_profile(preset_file(name)) for name in PRESETS}


def _from_probe(settings: Settings, how: HowToProbe, command: list[str], *, bind: bool = False) -> LearnedProfile:
    from proxy.probe.learning import acts_of_probe  # noqa: PLC0415  not needed for --help

    prepare(settings)
    report, evidence = probe_local(settings, how, command)
    if report.problem:
        raise ConfigError(f"nothing is learned from a probe that broke off: {report.problem}")
    words = evidence.command
    package = package_of(shutil.which(words[0]) or words[0], words, str(Path.home()), evidence.context.cwd)
    home = evidence.context.home
    # Folders that the command line names are the client's roots, as they are when the server runs.
    roots = (*evidence.roots, *(each for each in roots_of(words, home, evidence.context.cwd) if each not in package))
    named = tuple(path for path in evidence.startup.granted if path.startswith(f"{home}/"))
    places = Places(home, evidence.context.cwd, (*roots, *named), package, real_home=str(Path.home()))
    return learn(
        acts_of_probe(evidence),
        places,
        _presets(),
        server=how.name(command),
        source="a probe",
        env=how.env,
        bind=bind,
    )


def _from_trail(
    settings: Settings, server: str | None, since: str | None, command: list[str], how: HowToProbe, *, bind: bool
) -> LearnedProfile:
    from proxy.learn.acts import acts_of_events  # noqa: PLC0415

    name = server or (how.name(command) if command else None)
    if name is None:
        raise ConfigError("--from trail needs --server NAME, or the server's command after --")
    start = parse_time(since, "--since", time.time()) if since else None
    acts = acts_of_events(asyncio.run(_observed(settings, name, start)))
    if not len(acts):
        raise ConfigError(f"the trail has seen nothing of {name!r}; `interlock run` records what a traced server does")
    home, cwd = str(Path.home()), str(Path.cwd())
    package = package_of(shutil.which(command[0]) or command[0], command, home, cwd) if command else ()
    roots = roots_of(command, home, cwd) if command else ()
    places = Places(home, cwd, roots, package)
    return learn(acts, places, _presets(), server=name, source="the trail", env=how.env, bind=bind)


async def _observed(settings: Settings, server: str, since: float | None) -> list[dict[str, Any]]:
    from proxy.audit.reader import open_audit  # noqa: PLC0415
    from proxy.core.event import Filter  # noqa: PLC0415

    found: list[dict[str, Any]] = []
    calls: dict[str, dict[str, Any]] = {}
    async with open_audit(settings.postgres, settings.state_dir) as reader:
        async for entry in reader.entries(Filter(since=since, server=server)):
            event = json.loads(entry.body)
            if event.get("kind") == "decided" and event.get("call_id"):
                calls[event["call_id"]] = {name: event.get(name) for name in ("tool", "arguments")}
            if event.get("kind") == "observed":
                found.append(event)
            if len(found) > MAX_EVENTS:
                raise ConfigError(f"the trail has more than {MAX_EVENTS} such events; narrow them with --since")
    return [{**event, **calls.get(str(event.get("call_id")), {})} for event in found]


def _probed(state_dir: Path | None, config: Path | None, how: HowToProbe, words: list[str]) -> SandboxProfile:
    settings = load_settings({"state_dir": state_dir}, config_file=config).settings
    text = _checked(profile_text(_from_probe(settings, how, words), "now"))
    return resolve(parse_text(text.encode(), "the learned profile"))


def _checked(text: str) -> str:
    """Return the text of a profile that loads. What a server did must not lead to a file that says something else."""
    parse_text(text.encode(), "the learned profile")
    return text


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error


def _count(learned: LearnedProfile) -> int:
    return sum(map(len, learned.sections.values())) + len(learned.network) + len(learned.tools)


def _learned_data(learned: LearnedProfile, text: str, output: Path | None) -> dict[str, Any]:
    left = [{"what": each.what, "why": each.why} for each in learned.left_out]
    profile = parse_text(text.encode(), "the learned profile").model_dump(mode="json", exclude_none=True)
    return {
        "server": learned.server,
        "from": learned.source,
        "file": str(output) if output else None,
        "profile": profile,
        "left_out": left,
    }


def _difference_data(found: tuple[Difference, ...]) -> dict[str, Any]:
    def those(*, more: bool) -> list[dict[str, str]]:
        return [{"section": each.section, "value": each.value} for each in found if each.more is more]

    return {"more": those(more=True), "less": those(more=False)}


def _print_differences(found: tuple[Difference, ...]) -> None:
    lines = [f"{'+' if each.more else '-'} {each.section}: {comment(each.value)}" for each in found]
    more = sum(each.more for each in found)
    typer.echo("\n".join([*lines, f"{more} more, {len(found) - more} less"]))


def _find(name: str, policy: Path | None) -> tuple[SandboxProfile, Path | None]:
    """Return a profile by its name, and the folder that it extends others from. Raises ConfigError."""
    if policy is None:
        file = find_profile(name)
        return parse_profile(file), file.parent
    from proxy.policy.load import load_policy  # noqa: PLC0415

    found = load_policy(policy).sandboxes.for_server(name)
    if found is None:
        raise ConfigError(f"the policy {policy} has no sandbox for the server {name!r}")
    return found, policy if policy.is_dir() else policy.parent


def _shown(name: str, own: SandboxProfile, whole: SandboxProfile, folder: Path | None) -> list[str]:
    origins = {each: resolve(SandboxProfile(extends=[each]), folder) for each in own.extends}
    origins = {"base": resolve(SandboxProfile()), **origins}
    lines = [f"# {comment(name)}, with {', '.join(origins)}"]
    for part in LISTS:
        shown = [Line(value, _origin(part, value, own, origins)) for value in getattr(whole, part)]
        lines += section(part, shown)
    hosts = whole.hosts
    if hosts:
        lines += section("network", [Line(host, _origin("network", host, own, origins)) for host in hosts])
    else:
        lines.append(f"network: {'any' if hosts is None else 'none'}")
    limits = whole.limits.model_dump(exclude_none=True)
    lines += ["limits:", *(f"  {key}: {value}" for key, value in limits.items())] if limits else []
    for tool, bound in whole.tools.items():
        lines.append(f"# {comment(tool)}: files {bound.files}, network {bound.network}")
    return [*lines, f"on_violation: {whole.violation}", f"mode: {whole.mode or 'enforce'}"]


def _origin(part: str, value: str, own: SandboxProfile, origins: dict[str, SandboxProfile]) -> str:
    if value in (getattr(own, part) or ()):
        return "this profile"
    return next((name for name, each in origins.items() if value in (getattr(each, part) or ())), "extended")
