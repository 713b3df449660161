"""Choose the rules that need to be evaluated for a call, by indexes over their conditions. Pure, no I/O.

A `Plan` is made once for each set of rules. It skips a rule only where evaluating it would have
returned no and raised nothing. So the conditions in an index are ones that the whole cannot
hold without and that nothing is evaluated before. A rule without such a condition, for
example one that negates, is evaluated every time.

An index has the conditions of one kind on one `arg`. For a call it returns the numbers of the
rules that may match. Leaving a rule out is a promise that its condition is false, whatever view
of the value is taken; in doubt the rule is returned, and evaluated. The tests decide every case
of the adversarial tables with and without indexes. An index is used only where the call has a
value there: without any value, every condition that has an index is false.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proxy.policy.arg_path import EVERYTHING, ArgPath, parse_arg
from proxy.policy.command_operator import CommandView, parse_pattern, view_command
from proxy.policy.compiled_rule import CompiledRule, Hit
from proxy.policy.conditions import All, Any_, Condition, When, as_tuple
from proxy.policy.eval_context import EvalContext
from proxy.policy.globs import is_glob
from proxy.policy.host_operators import compile_hosts, view_url
from proxy.policy.operators import text_variants
from proxy.policy.path_fastpath import read_plain_path
from proxy.policy.path_operator import compile_roots, gather_paths, glob_search
from proxy.policy.plain_arguments import read_plainly
from proxy.policy.regex import bundle, compile_search
from proxy.policy.views import TextView, Views, gather, single_text, view_contents, view_scalar, view_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from proxy.policy.hosts import Host, UrlViews

type Index = Callable[[EvalContext], Collection[int]]
type Build = Callable[[ArgPath, Sequence[Leaf]], Index]
type Table[T] = dict[T, frozenset[int]]

# Longer texts are searched for each pattern by itself: RE2's automaton for joined patterns can
# outgrow its memory on them and become slow.
_MAX_TEXT: Final = 4096


class Leaf(NamedTuple):
    """The operand of one condition, and the number of its rule."""

    operand: Any
    rule: int


def _table[T](entries: Iterable[tuple[T, int]]) -> Table[T]:
    rules: dict[T, set[int]] = {}
    for key, rule in entries:
        rules.setdefault(key, set()).add(rule)
    return {key: frozenset(found) for key, found in rules.items()}


def _all_rules(leaves: Sequence[Leaf]) -> frozenset[int]:
    return frozenset(leaf.rule for leaf in leaves)


def index_presence(_arg: ArgPath, leaves: Sequence[Leaf]) -> Index:
    """Return every rule: of these conditions it is only known that they are false without a value."""
    everyone = _all_rules(leaves)
    return lambda _reading: everyone


def index_paths(arg: ArgPath, leaves: Sequence[Leaf]) -> Index:
    """Index `path_under`: look up each prefix of a path among the folders."""
    paths_of = gather_paths(arg)
    everyone = _all_rules(leaves)
    compiled = [(compile_roots(as_tuple(leaf.operand)), leaf.rule) for leaf in leaves]
    folders = _table((root, rule) for roots, rule in compiled for root in roots.folded)
    lengths = sorted({len(root) for root in folders})
    relative = frozenset(rule for roots, rule in compiled if roots.relative)
    globs = [(roots.folded_glob, rule) for roots, rule in compiled if roots.folded_glob is not None]
    some_glob = glob_search([glob for roots, _ in compiled for glob in roots.globs])

    def index(context: EvalContext) -> Collection[int]:
        # The fast path of `path_fastpath`, without a PathSet: one plain absolute path. It is sound
        # because such a path has no relative, pattern or problem part that the rest looks at.
        value = arg.single_value(context) if some_glob is None else None
        if type(value) is str and value[:1] == "/" and (path := read_plain_path(value)) is not None:
            folded = path.lower()
            return {rule for length in lengths for rule in folders.get(folded[:length], ())}
        paths = paths_of(context)
        if paths.trouble is not None:
            return everyone
        heads = [head for path in paths.folded for length in lengths if (head := path[:length]) in folders]
        found = {rule for head in heads for rule in folders[head]}
        if some_glob is not None:
            hit = [path for path in paths.folded if some_glob(path)]
            found.update([rule for path in hit for fits, rule in globs if fits(path)])
        # Whether a relative path is under a relative root is left to the operator.
        if paths.relative:
            found |= relative
        may_reach = paths.may_reach
        if may_reach is not None:
            found.update(*[rules for root, rules in folders.items() if may_reach(root)])
            found.update([rule for roots, rule in compiled if any(map(may_reach, roots.globs))])
        return found

    return index


def index_matches(arg: ArgPath, leaves: Sequence[Leaf]) -> Index:
    """Index `matches`: search a text for many patterns at once, and for each one only where that finds something."""
    rules = _table((pattern, leaf.rule) for leaf in leaves for pattern in as_tuple(leaf.operand))
    each = {pattern: (compile_search(pattern), found) for pattern, found in rules.items()}
    bundles = [(some.search, [each[pattern] for pattern in some.patterns]) for some in bundle(tuple(rules))]

    def find(readings: Iterable[str]) -> set[int]:
        found: set[int] = set()
        for text in readings:
            short = len(text) <= _MAX_TEXT
            for search, members in bundles:
                if not short or search(text):
                    for fits, given in members:
                        if fits(text):
                            found |= given
        return found

    index_views = _index_views(gather(arg, "text", view_text), leaves, lambda view: find(view.readings))
    everywhere = arg.steps == EVERYTHING

    def index(context: EvalContext) -> Collection[int]:
        # Every string of plain arguments is one that a single reading is all there is of.
        if everywhere and (plain := read_plainly(context)) is not None:
            return find(plain.texts)
        text = single_text(arg, context)
        return index_views(context) if text is None else find((text,))

    return index


def index_scalars(arg: ArgPath, leaves: Sequence[Leaf]) -> Index:
    """Index `equals` and `in`: equal values have a name in common (`ScalarView.names`)."""
    rules = _table(
        (name, leaf.rule) for leaf in leaves for value in as_tuple(leaf.operand) for name in view_scalar(value).names
    )

    def find(view: Any) -> set[int]:
        return {rule for name in view.names for rule in rules.get(name, ())}

    return _index_views(gather(arg, "scalar", view_scalar), leaves, find)


def _index_slices(cut: Callable[[str, int], str], arg: ArgPath, leaves: Sequence[Leaf]) -> Index:
    rules = _folded_words(leaves)
    lengths = sorted({len(word) for word in rules})

    def find(view: TextView) -> set[int]:
        slices = [cut(text, length) for text in view.folded for length in lengths]
        return {rule for part in slices for rule in rules.get(part, ())}

    return _index_views(gather(arg, "text", view_text), leaves, find)


def index_contents(arg: ArgPath, leaves: Sequence[Leaf]) -> Index:
    rules = _folded_words(leaves)
    words = tuple(rules.items())

    def find(view: Any) -> set[int]:
        if isinstance(view, TextView):
            return {rule for text in view.folded for word, found in words if word in text for rule in found}
        return {rule for element in view for name in element.names for rule in rules.get(name, ())}

    return _index_views(gather(arg, "contents", view_contents), leaves, find)


def _folded_words(leaves: Sequence[Leaf]) -> Table[str]:
    return _table((word, leaf.rule) for leaf in leaves for word in text_variants(leaf.operand)[1])


def index_commands(arg: ArgPath, leaves: Sequence[Leaf]) -> Index:
    """Index `command`: look up the programs that a command line runs or mentions."""
    entries = [(parse_pattern(text), leaf.rule) for leaf in leaves for text in as_tuple(leaf.operand)]
    rules = _table((entry.program, rule) for entry, rule in entries if not is_glob(entry.program))
    globs = [(entry.fits, rule) for entry, rule in entries if is_glob(entry.program)]

    def find(view: CommandView) -> set[int]:
        names = {program.name for program in (*view.run, *view.maybe)} | view.mentioned
        found = {rule for name in names for rule in rules.get(name, ())}
        return found | {rule for fits, rule in globs if any(map(fits, names))}

    return _index_views(gather(arg, "command", view_command), leaves, find, with_problems=True)


def index_classes(arg: ArgPath, leaves: Sequence[Leaf]) -> Index:
    rules = _table((kind, leaf.rule) for leaf in leaves for kind in as_tuple(leaf.operand))

    def find(view: UrlViews) -> set[int]:
        kinds = {kind for host in view.hosts for found in host.classes() for kind in found}
        return {rule for kind in kinds for rule in rules.get(kind, ())}

    return _index_views(gather(arg, "url", view_url), leaves, find, with_problems=True)


def index_hosts(arg: ArgPath, leaves: Sequence[Leaf]) -> Index:
    """Index `host_in`: look up a host's name, its parent domains and its addresses."""
    compiled = [(compile_hosts(as_tuple(leaf.operand)), leaf.rule) for leaf in leaves]
    names = _table((name, rule) for hosts, rule in compiled for name in hosts.names)
    suffixes = _table((suffix, rule) for hosts, rule in compiled for suffix in hosts.suffixes)
    addresses = _table((address, rule) for hosts, rule in compiled for address in hosts.addresses)
    longest = max(map(len, suffixes), default=0)
    globs = [(hosts.fits_glob, rule) for hosts, rule in compiled if hosts.fits_glob is not None]

    def find(host: Host) -> set[int]:
        name = host.name
        found = set(names.get(name, ()))
        for address in host.addresses:
            found |= addresses.get(address, _NO_RULES)
        if longest:
            end = name[-longest:]
            for tail in [end[at:] for at, char in enumerate(end) if char == "."]:
                found |= suffixes.get(tail, _NO_RULES)
        found.update([rule for fits, rule in globs if fits(name)])
        return found

    def find_all(view: UrlViews) -> set[int]:
        return {rule for host in view.hosts for rule in find(host)}

    return _index_views(gather(arg, "url", view_url), leaves, find_all, with_problems=True)


_NO_RULES: Final[frozenset[int]] = frozenset()


def _index_views(
    views_of: Callable[[EvalContext], Views],
    leaves: Sequence[Leaf],
    find: Callable[[Any], Collection[int]],
    *,
    with_problems: bool = False,
) -> Index:
    everyone = _all_rules(leaves)

    # A value that cannot be judged may match any of the rules.
    def index(context: EvalContext) -> Collection[int]:
        items, extra, _, trouble = views_of(context)
        if trouble is not None or (with_problems and any(view.problem is not None for view in items)):
            return everyone
        if len(items) == 1 and not extra:
            return find(items[0])
        return {rule for view in (*items, *extra) for rule in find(view)}

    return index


# By operator. `not_equals` holds without a value, so it cannot be indexed.
INDEXES: Final[dict[str, Build]] = {
    "equals": index_scalars,
    "in": index_scalars,
    "starts_with": partial(_index_slices, lambda text, length: text[:length]),
    # Not text[-length:], which is the whole text where length is 0.
    "ends_with": partial(_index_slices, lambda text, length: text[max(len(text) - length, 0) :]),
    "contains": index_contents,
    "matches": index_matches,
    "path_under": index_paths,
    "host_in": index_hosts,
    "ip_class": index_classes,
    "command": index_commands,
    **dict.fromkeys(
        ("gt", "gte", "lt", "lte", "exists", "type", "length", "only_keys", "url_scheme", "host_data", "cidr"),
        index_presence,
    ),
    **dict.fromkeys(("command_path_under", "command_host_in", "sql"), index_presence),
}


# A condition that a rule cannot match without: its arg, the index for its operator, its operand.
type _Need = tuple[str, Build, Any]


class RuleIndex:
    """The rules for a tool, and the indexes that choose among them; `certain` has the hits without a condition."""

    __slots__ = ("_always", "_by_name", "_indexes", "_looks_everywhere", "_rules", "certain")

    def __init__(self, rules: Sequence[CompiledRule]) -> None:
        self._rules = rules
        self.certain = {number: Hit(rule) for number, rule in enumerate(rules) if rule.rule.when is None}
        needs = {number: _needs(rule.rule.when) for number, rule in enumerate(rules) if rule.rule.when is not None}
        self._always = [number for number, found in needs.items() if found is None]
        self._indexes = tuple(_indexes({number: found for number, found in needs.items() if found is not None}))
        self._by_name = tuple(group for group in self._indexes if group[0].selector is None)
        self._looks_everywhere = len(self._by_name) < len(self._indexes) or any(
            arg.steps == EVERYTHING for arg, _, _ in self._indexes
        )

    def evaluate(self, context: EvalContext) -> list[Hit] | None:
        """Return the hits of the rules in their order; None where only rules without a condition match."""
        chosen = set(self._always)
        plain = read_plainly(context) if self._looks_everywhere else None
        groups = self._by_name if plain is not None and plain.selects_nothing else self._indexes
        for arg, indexes, members in groups:
            try:
                # Of plain arguments `**` is all of them: whether there is one is not worth the walk to it.
                if (plain is not None and arg.steps == EVERYTHING) or not arg.is_absent(context):
                    for index in indexes:
                        chosen.update(index(context))
            except Exception:  # noqa: BLE001 - the rules meet it again and report it
                chosen |= members
        if not chosen:
            return None
        hits = {number: hit for number in chosen if (hit := _evaluate(self._rules[number], context)) is not None}
        if not hits:
            return None
        hits |= self.certain
        return [hits[number] for number in sorted(hits)]


def _evaluate(rule: CompiledRule, context: EvalContext) -> Hit | None:
    # Most rules do not match, and the bare test finds that out at the least cost.
    try:
        if not rule.test(context):
            return None
    except Exception:  # noqa: BLE001, S110 - `evaluate` meets it again and reports it
        pass
    return rule.evaluate(context)


def _needs(when: When) -> list[_Need] | None:
    """Return conditions of which at least one holds wherever the whole does; None where there are none."""
    match when:
        case Condition():
            name, operand = next(iter(when.operators().items()))
            build = INDEXES.get(name)
            if build is None or (name == "exists" and not operand):
                return None
            if name in ("equals", "in") and None in as_tuple(operand):
                build = index_presence
            return [(when.arg, build, operand)]
        case Any_(any=parts):
            found = [_needs(part) for part in parts]
            return None if None in found else [need for needs in found for need in needs or ()]
        case All(all=parts):
            # Only the first will do: it is evaluated, and may raise, even where a later part is false.
            return _needs(parts[0])
        case _:
            return None


def _indexes(needs: dict[int, list[_Need]]) -> Iterator[tuple[ArgPath, tuple[Index, ...], frozenset[int]]]:
    groups: dict[str, dict[Build, list[Leaf]]] = {}
    for number, found in needs.items():
        for arg_text, build, operand in found:
            groups.setdefault(arg_text, {}).setdefault(build, []).append(Leaf(operand, number))
    for text, kinds in groups.items():
        arg = parse_arg(text)
        members = frozenset(leaf.rule for leaves in kinds.values() for leaf in leaves)
        yield arg, tuple(build(arg, leaves) for build, leaves in kinds.items()), members
