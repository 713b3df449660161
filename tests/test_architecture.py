"""The arrows between the packages, read from the imports."""

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
    """Return the modules an import statement names; a name may be a module inside the one it comes from."""
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
    """Return what a module imports, anywhere in it."""
    found: set[str] = set()
    stack: list[ast.AST] = [tree_of(module)]
    while stack:
        node = stack.pop()
        found |= names_of(node)
        skipped = is_type_checking(node) and not typing_too
        stack.extend(node.orelse if skipped and isinstance(node, ast.If) else ast.iter_child_nodes(node))
    return frozenset(found)


def imported_at_once(module: str) -> set[str]:
    """Return what a module imports when it is imported itself, and not later in a function."""
    found: set[str] = set()
    stack: list[ast.AST] = [tree_of(module)]
    while stack:
        node = stack.pop()
        found |= names_of(node)
        if isinstance(node, ast.If) and is_type_checking(node):
            stack.extend(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            stack.extend(ast.iter_child_nodes(node))
    return found


def within(name: str, rooms: tuple[str, ...]) -> bool:
    return any(name == room or name.startswith(f"{room}.") for room in rooms)


def ours(module: str) -> set[str]:
    """Return which of our own modules a module imports; `proxy` itself holds the version alone."""
    return {name for name in imports(module) if within(name, ("proxy", "addons")) and name != "proxy"}


CORE = ("proxy.core", "proxy.errors")
# Package, and which of our own it may import beside itself. A name may be one module of a package:
# where two packages need each other's parts, the arrow between them is spelt out.
PACKAGES: dict[str, tuple[str, ...]] = {
    "proxy.core": ("proxy.errors",),
    "proxy.errors": (),
    "proxy.system": CORE,
    "proxy.config": ("proxy.system", "proxy.sinks.settings", "proxy.sinks.any_sink", *CORE),
    "proxy.agent": CORE,
    "proxy.sandbox": ("proxy.system", "proxy.policy.yaml_file", "proxy.policy.load_errors", *CORE),
    "proxy.wire": CORE,
    "proxy.policy": ("proxy.sandbox.profile", *CORE),
    "proxy.redact": CORE,
    "proxy.injection": ("proxy.redact", *CORE),
    "proxy.identity": ("proxy.system", *CORE),
    "proxy.vault": ("proxy.system", *CORE),
    "proxy.external": ("proxy.identity.issuer_http", *CORE),
    "proxy.twophase": ("proxy.policy.text", "proxy.system", *CORE),
    "proxy.egress": ("proxy.policy", *CORE),
    "proxy.flows": ("proxy.policy", "proxy.redact", *CORE),
    "proxy.gate": ("proxy.wire", "proxy.policy", "proxy.injection", "proxy.twophase", "proxy.flows", *CORE),
    "proxy.store": ("proxy.gate.tool_pins", "proxy.gate.in_flight_json", "proxy.system", *CORE),
    "proxy.audit": (
        "proxy.store",
        "proxy.config",
        "proxy.system",
        "proxy.sinks.open_sinks",
        "proxy.sinks.role",
        "proxy.sinks.parquet_files",
        *CORE,
    ),
    "proxy.sinks": ("proxy.store.queries", "proxy.system", *CORE),
    "proxy.metrics": ("proxy.redact", "proxy.system", "proxy.store.database", *CORE),
    "proxy.telemetry": ("proxy.sinks", "proxy.system", *CORE),
    "proxy.fleet": (
        *("proxy.store", "proxy.identity", "proxy.gate.tool_pins", "proxy.twophase.keys", "proxy.twophase.tokens"),
        *("proxy.config", "proxy.rollout.keys", "proxy.audit.signing_keys", "proxy.system", "proxy.vault", *CORE),
    ),
    "proxy.rollout": ("proxy.policy", "proxy.audit.signing_keys", "proxy.system", *CORE),
    "proxy.trace": ("proxy.sandbox", "proxy.egress.dns", *CORE),
    "proxy.stdio": ("proxy.gate", "proxy.wire", "proxy.trace", "proxy.sandbox", *CORE),
    "proxy.policy_learning": ("proxy.policy", "proxy.learn.profile_text", *CORE),
    "proxy.learn": (
        "proxy.sandbox",
        "proxy.trace.argument_hints",
        "proxy.trace.capability",
        "proxy.system.terminal_text",
        *CORE,
    ),
    "proxy.probe": (
        *("proxy.injection", "proxy.learn", "proxy.redact"),
        *("proxy.trace", "proxy.sandbox", "proxy.gate", "proxy.wire", "proxy.policy"),
        *("proxy.egress.dns", "proxy.agent", "proxy.system", *CORE),
    ),
    "proxy.confine": ("proxy.sandbox", "proxy.egress.dns", *CORE),
    "proxy.notify": CORE,
    "proxy.kubernetes": CORE,
    "proxy.admin_api": ("proxy.twophase", "proxy.identity", "proxy.system", *CORE),
    "proxy.console": (
        *("proxy.admin_api", "proxy.audit", "proxy.config", "proxy.identity", "proxy.policy", "proxy.redact"),
        *(
            "proxy.fleet.open_state",
            "proxy.fleet.policy_keys",
            "proxy.gate.tool_pins",
            "proxy.policy_learning",
            "proxy.rollout",
            "proxy.store",
            "proxy.system",
        ),
        *("proxy.twophase", "proxy.vault", *CORE),
    ),
    "proxy.doctor": (
        *(
            "proxy.agent",
            "proxy.audit",
            "proxy.confine.kernel_settings",
            "proxy.config",
            "proxy.fleet",
            "proxy.identity",
            "proxy.policy",
            "proxy.sinks",
        ),
        *(
            "proxy.policy",
            "proxy.redact",
            "proxy.sandbox",
            "proxy.store",
            "proxy.system",
            "proxy.trace.tracer",
            "proxy.vault",
            *CORE,
        ),
    ),
    "addons": (
        *("proxy.gate", "proxy.egress", "proxy.wire", "proxy.metrics", "proxy.system", "proxy.policy.server_names"),
        *CORE,
    ),
}
# What puts everything together may import everything.
ROOTS = ("proxy.cli", "proxy.commands", "proxy.runtime")
PURE = (
    *CORE,
    "proxy.wire",
    "proxy.policy",
    "proxy.redact",
    "proxy.injection",
    "proxy.twophase",
    "proxy.flows",
    "proxy.agent",
    "proxy.egress.dns",
    "proxy.external.shapes",
    "proxy.identity.jwt",
    *("proxy.vault.placeholder", "proxy.vault.variables"),
    *(f"proxy.gate.{name}" for name in ("in_flight_json", "outbound_scan", "result_masking")),
    *(f"proxy.gate.{name}" for name in ("schema_check", "tool_descriptions", "tool_pins", "definition_drift")),
    "proxy.audit.event_schema",
    *(f"proxy.telemetry.{name}" for name in ("trace_context", "exported_event", "otlp_values", "attributes", "spans")),
    *(f"proxy.telemetry.{name}" for name in ("log_records", "durations", "ocsf", "cloudevents", "cef", "syslog")),
    *(f"proxy.telemetry.{name}" for name in ("call_memory", "otlp_requests")),
    *(f"proxy.trace.{name}" for name in ("strace", "arguments", "capability", "process_tree", "sockets")),
    *(f"proxy.trace.{name}" for name in ("normalise", "attribute", "observation_log", "server_name")),
    *(f"proxy.probe.{name}" for name in ("regex_sample", "synthesise", "declared_scope", "observation_facts")),
    *(f"proxy.probe.{name}" for name in ("findings", "observer", "declared_words", "texts", "comparison", "report")),
    "proxy.probe.deceit",
    *(f"proxy.probe.{name}" for name in ("sarif", "html_report", "learning")),
    "proxy.learn",
    "proxy.policy_learning",
    *(f"proxy.rollout.{name}" for name in ("step", "canary")),
    *(f"proxy.confine.{name}" for name in ("firewall", "file_view")),
    *(f"proxy.kubernetes.{name}" for name in ("pod", "admission")),
    *(
        f"proxy.sandbox.{name}"
        for name in ("profile", "secrets", "path_globs", "file_scope", "violations", "violation_rules")
    ),
)
# Parts of pure packages that do I/O, each for one purpose: watching files, reading keys, asking a model.
NOT_PURE = (
    "proxy.policy.reloader",
    "proxy.redact.reloader",
    "proxy.twophase.keys",
    "proxy.twophase.review",
    "proxy.twophase.sampler",
)
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


def package_of(module: str) -> str:
    fitting = [package for package in (*PACKAGES, *ROOTS) if within(module, (package,))]
    assert fitting, f"{module} is in no package that PACKAGES names"
    return max(fitting, key=len)


MODULES = [module for module in FILES if module != "proxy"]
PURE_MODULES = [module for module in MODULES if within(module, PURE) and module not in NOT_PURE]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_from_the_packages_it_may(module: str) -> None:
    package = package_of(module)
    if package not in ROOTS:
        assert {name for name in ours(module) if not within(name, (package, *PACKAGES[package]))} == set()


@pytest.mark.parametrize("module", PURE_MODULES)
def test_a_pure_package_imports_nothing_that_does_io(module: str) -> None:
    found = {name for name in imports(module, typing_too=False) if within(name, tuple(IO_MODULES))}
    assert found == set()


# The one reader of policy files, and tables that are packaged beside their code.
READERS = {"proxy.policy.load", "proxy.redact.detector_catalog", "proxy.redact.wallets"}


@pytest.mark.parametrize("module", [module for module in PURE_MODULES if module not in READERS])
def test_a_pure_package_opens_nothing(module: str) -> None:
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
        ("mitmproxy", ("addons", "proxy.runtime.worker")),
        ("apsw", ("proxy.store", "proxy.audit")),
        ("asyncpg", ("proxy.store",)),
        ("starlette", ("proxy.admin_api", "proxy.console", "proxy.kubernetes")),
        ("uvicorn", ("proxy.admin_api", "proxy.console", "proxy.kubernetes")),
        ("jinja2", ("proxy.console",)),
        ("typer", ("proxy.cli", "proxy.commands")),
        ("rich", ("proxy.cli", "proxy.commands")),
    ],
)
def test_a_library_stays_in_its_packages(library: str, rooms: tuple[str, ...]) -> None:
    users = {module for module in FILES if any(within(name, (library,)) for name in imports(module))}
    assert {user for user in users if not within(user, rooms)} == set()


def test_the_command_line_is_above_everything() -> None:
    for module in MODULES:
        if not within(module, ROOTS):
            assert not any(within(name, ROOTS) for name in ours(module)), module


def check_no_detour(graph: dict[str, set[str]]) -> None:
    done: set[str] = set()

    def visit(node: str, path: tuple[str, ...]) -> None:
        assert node not in path, " → ".join((*path[path.index(node) :], node))
        if node not in done:
            for imported in sorted(graph[node]):
                visit(imported, (*path, node))
            done.add(node)

    for node in graph:
        visit(node, ())


def test_no_module_imports_itself_by_a_detour() -> None:
    check_no_detour(
        {
            module: {name for name in imports(module, typing_too=False) if name in FILES and name != module}
            for module in FILES
        }
    )


def test_no_package_imports_itself_by_a_detour() -> None:
    # Parts that two packages need of each other belong below both.
    graph: dict[str, set[str]] = {room_of(module): set() for module in MODULES}
    for module in MODULES:
        rooms = {room_of(name) for name in imported_at_once(module) if name in MODULES}
        graph[room_of(module)] |= rooms - {room_of(module)}
    assert {"proxy.core", "proxy.store"} <= graph["proxy.audit"]
    check_no_detour(graph)


def room_of(module: str) -> str:
    return ".".join(module.split(".")[:2]) if module.startswith("proxy.") else "addons"


def test_nobody_imports_by_star() -> None:
    for module in FILES:
        for node in ast.walk(tree_of(module)):
            assert not (isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)), module


def test_the_reader_of_imports_sees_them() -> None:
    assert "apsw" in imports("proxy.audit.local_log")
    assert "mitmproxy" in imports("proxy.runtime.worker")
    assert "proxy.wire.body" in imports("proxy.gate.request")
    assert "proxy.core.reasons" in imports("proxy.gate.refusal")
    assert "proxy.runtime.supervisor" in imports("proxy.commands.up")
    assert "collections.abc" not in imports("proxy.core.model", typing_too=False)


def mirror(module: str) -> Path:
    parts = module.removeprefix("proxy.").split(".")
    return ROOT.joinpath("tests", *parts[:-1], f"test_{parts[-1]}.py")


# These hold Protocols and values without behaviour; the contract tests of their implementations cover them.
WITHOUT_MIRROR = {"proxy.core.interfaces", "proxy.core.proposals", "proxy.core.rule_proposals"}


@pytest.mark.parametrize(
    "module",
    [module for module, file in FILES.items() if file.name != "__init__.py" and module not in WITHOUT_MIRROR],
)
def test_a_module_has_its_mirror_among_the_tests(module: str) -> None:
    assert mirror(module).is_file()
