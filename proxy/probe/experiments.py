"""Finds flaws that no single answer shows, by calls whose answers differ only where an argument acts. Pure.

An experiment is a generator: it yields values of one parameter, gets the answer to each, and returns what it has
proved. It proves by comparison: twice with other random words, against a made-up value, and against the same words in
a form that acts nowhere. A tool that counts, sorts, searches or repeats words answers those alike.
"""

from __future__ import annotations

import base64
import html
import json
import re
import secrets
import string
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from proxy.probe.deceit import contacts, credentials, personal_numbers, speaks_of_credentials
from proxy.probe.declared_words import EXEC_PARAMETERS, split_words
from proxy.probe.synthesise import fits, synthesise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxy.core.model import JsonObject
    from proxy.probe.synthesise import SampleFiles

MAX_PARAMETERS = 4
MAX_IDS = 24
# What a text of so few characters takes of a processor if a pattern tries all ways to read it, in seconds, and by what
# two characters more multiply it at least.
SLOW, GROWS = 0.4, 1.7
MAX_QUOTED = 160


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call brought back: its text, and the processor time that it took."""

    text: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Proved:
    """The rule that was broken, and by what one knows it."""

    rule: str
    quote: str


type Trial = Generator[Any, Answer, Proved | None]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a tool, with what is said of it in words, and values that its server's source has for it."""

    name: str
    value: Any
    described: str
    about: str
    sample: JsonObject | None = None  # an object in JSON that its description gives as an example
    keys: tuple[str, ...] = ()  # of objects in the tool's answers
    ids: tuple[str, ...] = ()
    sql: bool = False  # whether the server runs any query that its caller writes
    keyed: bool = False  # whether the tool asks for a credential

    @property
    def runs(self) -> bool:
        return not EXEC_PARAMETERS.isdisjoint(split_words(self.name))


@dataclass(frozen=True, slots=True)
class Experiment:
    """One kind of flaw: for which parameters it is tried, and how."""

    label: str
    suits: Callable[[Parameter], bool]
    trial: Callable[[Parameter], Trial]
    last: bool = False  # whether it may leave no server for others to be tried on


@dataclass(frozen=True, slots=True)
class Planned:
    """An experiment on one parameter of a tool; `arguments` are those beside it."""

    experiment: Experiment
    parameter: Parameter
    arguments: JsonObject
    schema: JsonObject

    def put(self, value: Any) -> JsonObject | None:
        """Return the arguments with a value; None where they would not be valid."""
        arguments = {**self.arguments, self.parameter.name: value}
        return arguments if fits(self.schema, arguments) else None


def plan(
    tool: JsonObject, samples: SampleFiles, said: Sequence[str], ids: Sequence[str], *, sql: bool = False
) -> Iterator[Planned]:
    """Yield the experiments that suit a tool. `said` are its answers so far, `ids` those of the server's source."""
    schema = tool.get("inputSchema")
    root: JsonObject = schema if isinstance(schema, dict) else {}
    inputs = synthesise(tool, samples)
    properties = root.get("properties")
    known: JsonObject = properties if isinstance(properties, dict) else {}
    about = f"{tool.get('name', '')} {tool.get('description', '')}"
    keyed = any(_CREDENTIALS.intersection(split_words(name)) for name in known)
    for name in _names(inputs):
        # What is left out switches nothing on or off that would keep it from being used.
        base = next(each.arguments for each in inputs if name in each.arguments)
        own = known.get(name)
        described = str(own.get("description", "")) if isinstance(own, dict) else ""
        sample, shown = _sample(f"{described}\n{about}"), tuple(dict.fromkeys([*_ids(said), *ids]))[:MAX_IDS]
        words = " ".join(split_words(f"{name} {described[:300]}"))
        told = Parameter(name, base[name], words, about, sample, _keys(said), shown, sql, keyed)
        for each in EXPERIMENTS:
            if each.suits(told):
                yield Planned(each, told, base, root)


def _names(inputs: Sequence[Any]) -> list[str]:
    names = dict.fromkeys(name for each in inputs for name, value in each.arguments.items() if type(value) in _TYPES)
    return list(names)[:MAX_PARAMETERS]


_TYPES = (str, int, dict)
_CREDENTIALS = frozenset(
    {"token", "password", "passwd", "secret", "session", "auth", "authorization", "pin", "otp", "jwt"}
)
_JSON = re.compile(r"\{[^{}]{2,300}\}")
_KEY = re.compile(r"[\"']?\b([A-Za-z_]\w{1,30})[\"']?\s{0,3}[:=]")
_ID = re.compile(r"(?i)[\"']?\b(?:\w{1,20}_)?id[\"']?\s{0,3}[:=#]\s{0,3}[\"']?([\w-]{1,20})")


def _sample(text: str) -> JsonObject | None:
    for found in _JSON.findall(text):
        try:
            value = json.loads(found)
        except ValueError:
            continue
        if isinstance(value, dict) and value:
            return value
    return None


def _keys(said: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for text in said for key in _KEY.findall(text[:4000])))[:12]


def _ids(said: Sequence[str]) -> list[str]:
    return [each for text in said for each in _ID.findall(text[:4000])]


def word() -> str:
    """Return a word of letters alone that occurs nowhere else; all have one length."""
    return "q" + "".join(secrets.choice(string.ascii_lowercase) for _ in range(9))


# What differs from call to call by itself.
_TIMES = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.:+Z-]*|\b\d+(?:\.\d+)? ?(?:ms|seconds|secs|s)\b|\b\d+\.\d{3,}\b|\b\d{10,}\b"
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
)


def _shape(answer: Answer, value: Any, words: Sequence[str]) -> str:
    """Return an answer without what was typed, in any usual spelling, and without times."""
    typed = value if isinstance(value, str) else json.dumps(value)
    text = answer.text
    for form in (typed, json.dumps(typed)[1:-1], repr(typed)[1:-1], repr(value), html.escape(typed), quote(typed)):
        text = text.replace(form, "·")
    for each in words:
        text = re.sub(each, "·", text, flags=re.IGNORECASE)
    return _TIMES.sub("·", text)


@dataclass(frozen=True, slots=True)
class _Pair:
    """How to ask for what is true, for what is not, and for the same in a form that acts nowhere."""

    true: Callable[[list[str]], Any]
    false: Callable[[list[str]], Any]
    inert: Callable[[Any], Any]


def _differs(pairs: Sequence[_Pair], made_up: Callable[[str], Any], rule: str) -> Trial:
    """Prove that what is true brings more than a made-up value, and what is not true does not."""
    first = word()
    nothing = _shape((yield made_up(first)), made_up(first), [first])
    if not nothing:
        return None  # a tool that says nothing shows no difference
    for pair in pairs:
        seen: list[tuple[str, str]] = []
        for _ in range(2):
            words = sorted(word() for _ in range(3))
            true, false = pair.true(words), pair.false(words)
            seen.append((_shape((yield true), true, words), _shape((yield false), false, words)))
            if seen[-1][0] == seen[-1][1] or seen[-1][1] != nothing or seen[-1] != seen[0]:
                break
        else:
            one, other, again = pair.inert(true), pair.inert(false), word()
            unlike = _shape((yield one), one, words) != _shape((yield other), other, words)
            if not unlike and _shape((yield made_up(again)), made_up(again), [again]) == nothing:
                told = f"{_typed(true)} brings {_brief(seen[0][0])}, {_typed(false)} brings {_brief(nothing)}"
                return Proved(rule, told)
    return None


def _typed(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _brief(text: str) -> str:
    return repr(" ".join(text.split())[:MAX_QUOTED])


# A text that ends early, with a condition behind it. The true one and the other hold the same words, in another order.
# The first form suits LIKE as well, where a percent sign follows; the second suits XPath, which compares no texts by
# their order; a comment hides the rest of a query.
_QUERIES = (
    ("{0}' or '{1}'<'{2}", "{0}' or '{2}'<'{1}"),
    ("{0}' or '{1}'!='{2}' and '{1}'='{1}", "{0}' or '{1}'='{2}' and '{1}'!='{1}"),
    ("{0}') or ('{1}'<'{2}", "{0}') or ('{2}'<'{1}"),
    ("{0}') or ('{1}'!='{2}' and '{1}'='{1}", "{0}') or ('{1}'='{2}' and '{1}'!='{1}"),
    ("{0}' or '{1}'<'{2}' -- ", "{0}' or '{2}'<'{1}' -- "),
    ('{0}" or "{1}"<"{2}', '{0}" or "{2}"<"{1}'),
    ("0 or 3<5", "0 or 5<3"),
)


def _query(_: Parameter) -> Trial:
    pairs = [_condition(true, false) for true, false in _QUERIES]
    return (yield from _differs(pairs, lambda made_up: made_up, "argument-in-query"))


def _condition(true: str, false: str) -> _Pair:
    def put(form: str) -> Callable[[list[str]], Any]:
        return lambda words: form.format(*words)

    return _Pair(put(true), put(false), lambda value: value.replace(" or ", " ro "))


_EXPRESSIONS = re.compile(r"\b(where|conditions?|expression|formula|filter|sql|statement|calculat\w*|math\w*)\b")


def _may_query(parameter: Parameter) -> bool:
    # Who takes conditions has none to be escaped from.
    open_ = isinstance(parameter.value, str) and not parameter.runs and not parameter.sql
    return open_ and not _EXPRESSIONS.search(parameter.described)


def _operators(parameter: Parameter) -> Trial:
    """Send operators of MongoDB in place of a text, in JSON and as objects, or in place of all texts of an object."""
    sample = parameter.sample

    def filled(inner: Any) -> Any:
        return json.dumps(dict.fromkeys(sample, inner)) if sample else inner

    spellings: tuple[Callable[[Any], Any], ...] = (filled,) if sample else (json.dumps, lambda inner: inner)
    pairs = [_operator(name, spell) for spell in spellings for name in ("$ne", "$nin")]
    return (yield from _differs(pairs, filled, "argument-in-query"))


def _operator(name: str, spell: Callable[[Any], Any]) -> _Pair:
    def inert(value: Any) -> Any:
        return value.replace("$", "x") if isinstance(value, str) else {f"x{key}": each for key, each in value.items()}

    return _Pair(
        lambda words: spell({name: words[0] if name == "$ne" else words[:1]}),
        lambda words: spell({"$in": words[:1]}),
        inert,
    )


_SELECTORS = re.compile(r"\b(filter|where|pipeline|conditions?|selector|criteria|aggregat\w*|mongo\w*)\b")


def _may_operate(parameter: Parameter) -> bool:
    if parameter.runs or not isinstance(parameter.value, str):
        return False
    if parameter.sample:  # a filter is there to be one, but not where it is to be matched with a password
        return any(_CREDENTIALS.intersection(split_words(key)) for key in parameter.sample)
    return not _SELECTORS.search(f"{parameter.described} {parameter.about.lower()}")


def _pollution(parameter: Parameter) -> Trial:
    """Set a property of all objects, and find it in an answer to who has not set it."""
    keys = [*parameter.keys, "role", "name", "status", "isAdmin"]
    for spell in _SPELLINGS:
        if not isinstance(spell({}), type(parameter.value)):
            continue
        yield spell({})
        mine, nested = word(), word()
        yield spell(dict.fromkeys(keys, mine))
        yield spell({word(): dict.fromkeys(keys, nested)})
        before = (yield spell({})).text
        if mine in before or nested in before:
            continue  # it keeps what it is told: that is no effect on anything else
        for wrap in (lambda inner: {"__proto__": inner}, lambda inner: {"constructor": {"prototype": inner}}):
            value = word()
            yield spell(wrap(dict.fromkeys(keys, value)))
            after = (yield spell({})).text
            if value in after:
                return Proved("argument-pollutes", _brief(after))
    return None


_SPELLINGS: tuple[Callable[[JsonObject], Any], ...] = (
    lambda value: value,
    json.dumps,
    lambda value: base64.b64encode(json.dumps(value).encode()).decode(),
)
_OBJECTS = re.compile(
    r"\b(json|object|settings?|config\w*|preferences|options|sessions?|tokens?|merge|updates?|patch|data|payload|state"
    r"|properties|attributes|metadata|profile|base ?64|serialized|encoded)\b"
)


def _may_pollute(parameter: Parameter) -> bool:
    if isinstance(parameter.value, str) and not _OBJECTS.search(f"{parameter.described} {parameter.about.lower()}"):
        return False
    return isinstance(parameter.value, (str, dict)) and not parameter.runs


# Texts that nested repetitions read in many ways, and that fit at no end.
_SLOW_TEXTS = ("{0}~", "{1}~", "{2}~", "a@{0}~", "http://{0}~")
_LENGTHS = (22, 26, 30, 34, 38, 44)


def _pattern(_: Parameter) -> Trial:
    """Prove that the time is multiplied by every few characters more, as no work on a text this short needs."""
    for form in _SLOW_TEXTS:
        for length in _LENGTHS:
            if (yield _repeated(form, length)).seconds < SLOW:
                continue
            shortest = (yield _repeated(form, length - 4)).seconds
            shorter = (yield _repeated(form, length - 2)).seconds
            again = (yield _repeated(form, length)).seconds
            if again >= SLOW and again >= GROWS * shorter and shorter >= GROWS * shortest:
                times = ", ".join(f"{each:.2f}" for each in (shortest, shorter, again))
                told = f"{length - 4}, {length - 2} and {length} characters take {times} s of processor time"
                return Proved("uses-up-machine", f"{_repeated(form, length)!r}: {told}")
            break
    return None


def _repeated(form: str, length: int) -> str:
    return form.format("a" * length, "1" * length, " " * length)


def _is_text(parameter: Parameter) -> bool:
    return isinstance(parameter.value, str) and not parameter.runs


def _records(parameter: Parameter) -> Trial:
    """Ask for records by one identifier after another, and find what belongs to several persons."""
    number = isinstance(parameter.value, int)
    wanted = [each for each in parameter.ids if each.isdigit() or not number]
    secret: dict[str, str] = {}
    reached: dict[str, str] = {}
    # To whom it is said that there are credentials, they are shown.
    told = speaks_of_credentials(split_words(parameter.about))
    for each in dict.fromkeys([*wanted, *_USUAL_IDS]):
        said = (yield int(each) if number else each).text
        kept = {**({} if told else credentials(said)), **personal_numbers(said)}
        for held, owners in ((kept, secret), (contacts(said), reached)):
            for value, kind in held.items():
                if value != each:
                    owners.setdefault(value, f"{kind} of {each}")
    for rule, owners in (("secrets-of-anybody", secret), ("records-of-anybody", reached)):
        if len({each.rpartition(" ")[2] for each in owners.values()}) > 1:
            return Proved(rule, ", ".join(dict.fromkeys(owners.values()))[:MAX_QUOTED])
    return None


_USUAL_IDS = ("1", "2", "3", "100", "101", "1001", "1002")
_IDENTIFIERS = re.compile(r"\b(id|ids|identifier|number|no|user|username|account|customer|employee|patient|member)\b")


def _may_identify(parameter: Parameter) -> bool:
    named = _IDENTIFIERS.search(" ".join(split_words(parameter.name)))
    return type(parameter.value) in (int, str) and named is not None and not parameter.keyed


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment("one identifier after another", _may_identify, _records),
    Experiment("a condition in a query", _may_query, _query),
    Experiment("an operator in place of a text", _may_operate, _operators),
    Experiment("a text that a pattern reads in many ways", _is_text, _pattern, last=True),
    Experiment("a property of all objects", _may_pollute, _pollution, last=True),
)
