"""The arrows between the rooms, read from the imports."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(file): file for top in ("proxy", "addons") for file in sorted((ROOT / top).rglob("*.py"))}


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def names_of(node: ast.AST) -> set[str]:
    """Give the modules an import statement names; a name may be a module inside the one it comes from."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        inside = {f"{node.module}.{alias.name}" for alias in node.names}
        ours = {name for name in inside if name in FILES}
        return ours or {node.module or ""}
    return set()


@functools.cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text())


@functools.cache
def imports(module: str, *, typing_too: bool = True) -> frozenset[str]:
    """Give what a module imports, anywhere in it."""
    found: set[str] = set()
    stack: list[ast.AST] = [tree_of(module)]
    while stack:
        node = stack.pop()
        found |= names_of(node)
        skipped = is_type_checking(node) and not typing_too
        stack.extend(node.orelse if skipped and isinstance(node, ast.If) else ast.iter_child_nodes(node))
    return frozenset(found)


def within(name: str, rooms: tuple[str, ...]) -> bool:
    return any(name == room or name.startswith(f"{room}.") for room in rooms)


def ours(module: str) -> set[str]:
    """Give which of our own modules a module imports; `proxy` itself holds the version alone."""
    return {name for name in imports(module) if within(name, ("proxy", "addons")) and name != "proxy"}


MODEL = (
    "proxy.model",
    "proxy.roles",
    "proxy.frozen",
    "proxy.proposals",
    "proxy.events",
    "proxy.masking",
    "proxy.errors",
    "proxy.spelling",
)
PURE = (
    *MODEL,
    "proxy.reasons",
    "proxy.wire",
    "proxy.policy",
    "proxy.redact",
    "proxy.descriptions",
    "proxy.pins",
    "proxy.schema_fit",
    "proxy.said",
    "proxy.outbound",
    "proxy.results",
    "proxy.twophase",
    "proxy.trace.strace",
    "proxy.trace.arguments",
    "proxy.trace.capability",
    "proxy.trace.lineage",
    "proxy.trace.dns",
    "proxy.trace.sockets",
    "proxy.trace.normalise",
    "proxy.trace.attribute",
    "proxy.trace.ledger",
    "proxy.trace.names",
    "proxy.trace.patterns",
    "proxy.trace.synthesise",
    "proxy.trace.scope",
    "proxy.trace.facts",
    "proxy.trace.findings",
    "proxy.trace.observer",
    "proxy.trace.report",
    "proxy.client_config",
    "proxy.event_schema",
    "proxy.passing_on",
    "proxy.dns",
    "proxy.agent_env",
    "proxy.confine.rules",
    "proxy.confine.covers",
)
# Room, and which of our own modules it may import. The longest name that fits a module is its room.
ROOMS: dict[str, tuple[str, ...]] = {
    "proxy.model": MODEL,
    "proxy.roles": MODEL,
    "proxy.proposals": MODEL,
    "proxy.masking": MODEL,
    "proxy.events": MODEL,
    "proxy.errors": (),
    "proxy.frozen": (),
    "proxy.spelling": (),
    "proxy.reasons": (),
    "proxy.wire": ("proxy.wire", *MODEL),
    "proxy.policy": ("proxy.policy", *MODEL),
    "proxy.redact": ("proxy.redact", *MODEL),
    "proxy.twophase": ("proxy.twophase", "proxy.policy.text", *MODEL),
    "proxy.descriptions": ("proxy.policy", *MODEL),
    "proxy.pins": ("proxy.descriptions", *MODEL),
    "proxy.schema_fit": ("proxy.policy.regex", *MODEL),
    "proxy.said": MODEL,
    "proxy.passing_on": MODEL,
    "proxy.results": ("proxy.said", *MODEL),
    "proxy.outbound": ("proxy.said", "proxy.wire", *MODEL),
    "proxy.catalogue": PURE,
    "proxy.refusals": PURE,
    "proxy.journal": ("proxy.refusals", "proxy.catalogue", *PURE),
    "proxy.exchanges": PURE,
    "proxy.phases": ("proxy.journal", *PURE),
    "proxy.two_steps": ("proxy.phases", "proxy.refusals", "proxy.journal", "proxy.catalogue", *PURE),
    "proxy.way_back": (
        "proxy.two_steps",
        "proxy.refusals",
        "proxy.journal",
        "proxy.exchanges",
        "proxy.catalogue",
        *PURE,
    ),
    "proxy.gate": (
        "proxy.way_back",
        "proxy.two_steps",
        "proxy.refusals",
        "proxy.phases",
        "proxy.journal",
        "proxy.exchanges",
        "proxy.catalogue",
        *PURE,
    ),
    "proxy.event_schema": MODEL,
    "proxy.audit_keys": ("proxy.errors", "proxy.files"),
    "proxy.store": (
        "proxy.store",
        *MODEL,
        "proxy.resources",
        "proxy.files",
        "proxy.pins",
        "proxy.database_url",
        "proxy.audit_keys",
        "proxy.passing_on",
    ),
    "proxy.recording": ("proxy.store", "proxy.config", "proxy.database_url", "proxy.journal", *MODEL),
    "proxy.responses": ("proxy.gate", *PURE),
    "proxy.trace": (
        "proxy.trace",
        "proxy.gate",
        "proxy.refusals",
        "proxy.responses",
        "proxy.files",
        "proxy.isolation",
        *PURE,
    ),
    "proxy.doctor": (
        "proxy.doctor",
        "proxy.agent_env",
        "proxy.ca",
        "proxy.config",
        "proxy.confine.refusals",
        "proxy.database_url",
        "proxy.isolation",
        "proxy.policy",
        "proxy.recording",
        "proxy.redact",
        "proxy.runfile",
        "proxy.store",
        "proxy.trace.tracer",
        *MODEL,
    ),
    "proxy.desk": ("proxy.journal", *MODEL),
    "proxy.console": (
        "proxy.console",
        "proxy.desk",
        "proxy.operators",
        "proxy.journal",
        "proxy.store",
        "proxy.policy",
        *MODEL,
    ),
    "proxy.config": ("proxy.errors", "proxy.resources", "proxy.database_url"),
    "proxy.database_url": (),
    "proxy.client_config": ("proxy.errors",),
    "proxy.resources": (),
    "proxy.logs": ("proxy.embedding",),
    "proxy.files": ("proxy.errors",),
    "proxy.embedding": (),
    "proxy.ports": ("proxy.errors",),
    "proxy.workers": ("proxy.errors", "proxy.memory"),
    "proxy.health": (),
    "proxy.meters": ("proxy.reasons", "proxy.redact", *MODEL),
    "proxy.metered": ("proxy.meters", *MODEL),
    "proxy.exposition": ("proxy.meters",),
    "proxy.vitals": (
        "proxy.config",
        "proxy.exposition",
        "proxy.health",
        "proxy.live_policy",
        "proxy.meters",
        "proxy.resources",
        "proxy.store",
        "proxy.workers",
    ),
    "proxy.loops": (),
    "proxy.memory": (),
    "proxy.isolation": (),
    "proxy.confine": ("proxy.confine", "proxy.isolation", "proxy.dns"),
    "proxy.dns": (),
    "proxy.agent_env": (),
    "proxy.ca": ("proxy.errors", "proxy.files"),
    "proxy.keys": ("proxy.errors", "proxy.files", "proxy.config", "proxy.twophase"),
    "proxy.sampler": ("proxy.errors", "proxy.files", "proxy.config", "proxy.model"),
    "proxy.token_book": ("proxy.errors", "proxy.files"),
    "proxy.agents": ("proxy.token_book",),
    "proxy.operators": ("proxy.token_book", "proxy.errors", "proxy.files"),
    "proxy.runfile": ("proxy.files",),
    "proxy.live_policy": ("proxy.policy", *MODEL),
    "proxy.live_masker": ("proxy.redact", *MODEL),
    "proxy.egress": ("proxy.policy", *MODEL),
    "proxy.live_pins": ("proxy.store", *MODEL),
    "addons": (
        "addons",
        "proxy.gate",
        "proxy.responses",
        "proxy.egress",
        "proxy.outbound",
        "proxy.wire",
        "proxy.model",
        "proxy.roles",
        "proxy.reasons",
        "proxy.ports",
        "proxy.meters",
    ),
}
ROOTS = ("proxy.cli", "proxy.parts", "proxy.daemon", "proxy.supervisor", "proxy.commands")
IO_MODULES = [
    "aiohttp",
    "apsw",
    "asyncio",
    "asyncpg",
    "fcntl",
    "glob",
    "http",
    "httpx",
    "httpx2",
    "io",
    "logging",
    "mitmproxy",
    "mmap",
    "multiprocessing",
    "os",
    "pathlib",
    "pty",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "sqlite3",
    "ssl",
    "structlog",
    "subprocess",
    "sys",
    "tempfile",
    "time",
    "urllib.request",
]


def room_of(module: str) -> str:
    fitting = [room for room in (*ROOMS, *ROOTS) if within(module, (room,))]
    assert fitting, f"{module} is in no room: give it one in ROOMS"
    return max(fitting, key=len)


INHABITANTS = [module for module in FILES if module != "proxy"]


@pytest.mark.parametrize("module", INHABITANTS)
def test_a_module_imports_only_from_the_rooms_it_may(module: str) -> None:
    room = room_of(module)
    if room not in ROOTS:
        assert {name for name in ours(module) if not within(name, ROOMS[room])} == set()


@pytest.mark.parametrize("module", [module for module in INHABITANTS if within(module, PURE)])
def test_a_pure_room_imports_nothing_that_does_io(module: str) -> None:
    found = {name for name in imports(module, typing_too=False) if within(name, tuple(IO_MODULES))}
    assert found == set()


# The one reader of policy files, and a table that is packaged beside its code.
READERS = {"proxy.policy.load", "proxy.redact.detectors"}


@pytest.mark.parametrize("module", [module for module in INHABITANTS if within(module, PURE) and module not in READERS])
def test_a_pure_room_opens_nothing(module: str) -> None:
    tree = tree_of(module)
    opened = [
        ast.unparse(node.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Name) and node.func.id in {"open", "print", "input"})
            or (isinstance(node.func, ast.Attribute) and node.func.attr in {"read_text", "read_bytes", "write_text"})
        )
    ]
    assert opened == []


@pytest.mark.parametrize(
    ("library", "rooms"),
    [
        ("mitmproxy", ("addons", "proxy.daemon")),
        ("apsw", ("proxy.store",)),
        ("asyncpg", ("proxy.store",)),
        ("starlette", ("proxy.console",)),
        ("uvicorn", ("proxy.console",)),
        ("typer", ("proxy.cli", "proxy.commands")),
        ("rich", ("proxy.cli", "proxy.commands")),
    ],
)
def test_a_library_stays_in_its_rooms(library: str, rooms: tuple[str, ...]) -> None:
    users = {module for module in FILES if any(within(name, (library,)) for name in imports(module))}
    assert {user for user in users if not within(user, rooms)} == set()


def test_the_command_line_is_above_everything() -> None:
    for module in INHABITANTS:
        if not within(module, ROOTS):
            assert not any(within(name, ROOTS) for name in ours(module)), module


def test_no_module_imports_itself_by_a_detour() -> None:
    graph = {
        module: {name for name in imports(module, typing_too=False) if name in FILES and name != module}
        for module in FILES
    }
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " → ".join((*path[path.index(module) :], module))
        if module not in done:
            for imported in graph[module]:
                visit(imported, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_nobody_imports_by_star() -> None:
    for module in FILES:
        for node in ast.walk(tree_of(module)):
            assert not (isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)), module


def test_the_reader_of_imports_sees_them() -> None:
    assert "apsw" in imports("proxy.store.log")
    assert "mitmproxy" in imports("proxy.daemon")
    assert "proxy.wire.body" in imports("proxy.gate")
    assert "proxy.reasons" in imports("proxy.refusals")
    assert "proxy.supervisor" in imports("proxy.commands.up")
    assert "collections.abc" not in imports("proxy.model", typing_too=False)


def mirror(module: str) -> Path:
    parts = module.removeprefix("proxy.").split(".")
    return ROOT.joinpath("tests", *parts[:-1], f"test_{parts[-1]}.py")


# These are data alone; the daemon is tested by the acceptance tests.
WITHOUT_MIRROR = {
    "proxy.model",
    "proxy.roles",
    "proxy.proposals",
    "proxy.masking",
    "proxy.events",
    "proxy.errors",
    "proxy.daemon",
}
MIRRORED = ("proxy.wire", "proxy.store", "proxy.commands", "proxy.trace", "proxy.console", "proxy.confine")


@pytest.mark.parametrize(
    "module",
    [
        module
        for module, file in FILES.items()
        if file.name != "__init__.py"
        and module not in WITHOUT_MIRROR
        and (within(module, MIRRORED) or module.count(".") == 1)
        and not within(module, ("addons",))
    ],
)
def test_a_module_has_its_mirror_among_the_tests(module: str) -> None:
    assert mirror(module).is_file()
