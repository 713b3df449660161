"""What a text of SQL does: its kinds of statements, the tables and the functions that it uses. Pure, no I/O.

sqlglot parses it. Databases do not read every text as sqlglot does, so a text with something that they are known to
differ on has a problem, and so has one that does not parse.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from proxy.policy.sql_functions import HARMLESS
from proxy.policy.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlglot.parser import Parser

# Bounds on the work: sqlglot takes about 20 µs a token.
MAX_SQL: Final = 10_000
MAX_TOKENS: Final = 3000
MAX_DEPTH: Final = 50
# Ordinary SQL takes two to four steps a token.
_STEPS: Final = 500
_STEPS_PER_TOKEN: Final = 8
_MAX_STATEMENTS: Final = 20

_KINDS: Final[tuple[tuple[type[exp.Expr] | tuple[type[exp.Expr], ...], str], ...]] = (
    ((exp.Select, exp.SetOperation, exp.Values), "select"),
    (exp.Insert, "insert"),
    (exp.Update, "update"),
    (exp.Delete, "delete"),
    (exp.Merge, "merge"),
    (exp.Create, "create"),
    (exp.Drop, "drop"),
    (exp.Alter, "alter"),
    (exp.TruncateTable, "truncate"),
    ((exp.Grant, exp.Revoke), "grant"),
    (exp.Copy, "copy"),
    (exp.Set, "set"),
    (exp.Show, "show"),
    (exp.Describe, "describe"),
    (exp.Use, "use"),
    ((exp.Transaction, exp.Commit, exp.Rollback), "transaction"),
    ((exp.Attach, exp.Detach), "attach"),
    (exp.Pragma, "pragma"),
    (exp.Execute, "call"),
)
# Statements that change something wherever they stand, also inside a SELECT.
_CHANGES: Final = (
    exp.Insert,
    exp.Update,
    exp.Delete,
    exp.Merge,
    exp.Create,
    exp.Drop,
    exp.Alter,
    exp.Copy,
    exp.Command,
)
_COMMANDS: Final = {
    **{word: word for word in ("explain", "call", "show", "grant", "truncate", "vacuum", "analyze", "alter", "create")},
    **dict.fromkeys(("exec", "execute", "do"), "call"),
    "revoke": "grant",
    "begin": "transaction",
}
_EXPLAIN: Final = re.compile(
    r"\s*explain\b\s*(?P<options>\([^()]*\))?\s*(?P<words>(?:(?:analy[sz]e|verbose|query\s+plan|format\s*=\s*\w+)\s+)*)(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
# Words of the language that a parenthesis may follow.
_GRAMMAR: Final = frozenset(
    (
        *("all", "and", "any", "array", "as", "between", "bit", "by", "case", "cast", "char", "character", "cube"),
        *("decimal", "distinct", "else", "end", "except", "exists", "filter", "float", "from", "group", "having"),
        *("ilike", "in", "int", "intersect", "interval", "is", "join", "lateral", "like", "limit", "materialized"),
        *(
            "not",
            "numeric",
            "nvarchar",
            "offset",
            "on",
            "only",
            "or",
            "order",
            "over",
            "partition",
            "percent",
            "rollup",
        ),
        *("row", "rows", "select", "sets", "some", "then", "time", "timestamp", "timestamptz", "to", "top", "try_cast"),
        *("union", "using", "values", "varchar", "varying", "when", "where", "window", "with"),
    )
)


class SqlText(NamedTuple):
    """What a text of SQL does; `problem` says why that cannot be told.

    `tables` are names with their schema, as written, without case; `functions` those that do more than compute.
    """

    kinds: frozenset[str] = frozenset()
    tables: frozenset[tuple[str, ...]] = frozenset()
    functions: frozenset[str] = frozenset()
    problem: str | None = None


@lru_cache(maxsize=256)
def read_sql(text: str, dialect: str) -> SqlText:
    """Return what `text` does in a database of `dialect`."""
    problem = _oddity(text, dialect)
    if problem is not None:
        return SqlText(problem=problem)
    try:
        return _read(text, dialect)
    except (SqlglotError, RecursionError, ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        said = str(error).partition("\n")[0].partition(". Line")[0]
        return SqlText(problem=f"SQL that cannot be parsed: {said[:100]}")


def _oddity(text: str, dialect: str) -> str | None:
    """Return what databases and parsers read differently, or None."""
    if len(text) > MAX_SQL:
        return f"SQL of more than {MAX_SQL:,} characters"
    if any(c < " " and c not in "\t\n\r" for c in text) or clean(text) != text:
        return "SQL with control, invisible or look-alike characters"
    if re.search(r"\\['\"`]|\\$", text):
        return "SQL with a backslash before a quote, which ends a string in some databases only"
    if re.search(r"^\s*[\\.]\s*[a-z!?]", text, re.IGNORECASE | re.MULTILINE):
        return "a command of a database's client"
    comments = re.findall(r"/\*.*?(?:\*/|$)", text, re.DOTALL)
    if any(c[2:3] in ("!", "+", "M") or "/*" in c[2:] or not c.endswith("*/") for c in comments):
        return "a comment that some databases run"
    # `--1` is two minuses to MySQL, and a comment elsewhere.
    if dialect == "mysql" and re.search(r"--(?![ \t\r\n]|$)", text):
        return "two minuses that are no comment to MySQL"
    return None


def _read(text: str, dialect: str) -> SqlText:
    explained = _EXPLAIN.fullmatch(text)
    if explained is not None:
        runs = re.search(r"analy[sz]e", f"{explained['options']}{explained['words']}", re.IGNORECASE)
        inner = _read(explained["rest"], dialect) if explained["rest"].strip() else SqlText(frozenset({"other"}))
        # Without ANALYZE the first statement is only planned; what follows it runs.
        planned = inner.kinds if runs or ";" in explained["rest"].rstrip("; \n") else frozenset()
        return inner._replace(kinds=planned | {"explain"})
    tokens = sqlglot.tokenize(text, dialect=dialect)
    if len(tokens) > MAX_TOKENS or _depth(token.text for token in tokens) > MAX_DEPTH:
        return SqlText(problem="SQL that is too long or too deeply nested")
    parser = _bounded_parser(dialect, len(tokens))
    statements = [s for s in parser.parse(tokens, text) if s is not None]
    statements = [s for s in statements if not isinstance(s, exp.Semicolon)]
    if not statements or len(statements) > _MAX_STATEMENTS:
        return SqlText(problem="no SQL, or too many statements at once")
    nodes = [node for statement in statements for node in statement.walk()]
    return SqlText(
        frozenset((*map(_kind, statements), *_hidden_kinds(nodes))),
        frozenset(_tables(nodes)),
        frozenset(_functions(tokens, nodes, dialect)),
    )


def _bounded_parser(dialect: str, tokens: int) -> Parser:
    """Return a parser that gives up where it tries too many ways: for a row of JOINs it tries 2^n."""
    known = sqlglot.Dialect.get_or_raise(dialect)
    parser: Any = _bounded(known.parser_class)(dialect=known)
    parser.steps_left = _STEPS + _STEPS_PER_TOKEN * tokens
    made: Parser = parser
    return made


@cache
def _bounded(parser: type[Parser]) -> type[Parser]:
    def advance(self: Any, times: int = 1) -> None:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise ParseError("too much work")
        parser._advance(self, times)  # noqa: SLF001 - every step forth and back goes through it

    # It would log every statement that it does not take apart; these are `other` here.
    own = {"_advance": advance, "_warn_unsupported": lambda _self: None}
    return type("Bounded" + parser.__name__, (parser,), own)


def _depth(texts: Iterable[str]) -> int:
    deepest = depth = 0
    for text in texts:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(text, 0) + (text.upper() == "CASE") - (text.upper() == "END")
        deepest = max(deepest, depth)
    return deepest


def _kind(node: exp.Expr) -> str:
    inner: exp.Expr = node
    while isinstance(inner, exp.Subquery | exp.Paren) and isinstance(inner.this, exp.Expr):
        inner = inner.this
    if isinstance(inner, exp.Command):
        return _COMMANDS.get(str(inner.this).lower(), "other")
    return next((kind for classes, kind in _KINDS if isinstance(inner, classes)), "other")


def _hidden_kinds(nodes: Iterable[exp.Expr]) -> Iterator[str]:
    """Return the kinds of what stands inside other statements."""
    for node in nodes:
        if isinstance(node, _CHANGES) and node.parent is not None:
            yield _kind(node)
        elif isinstance(node, exp.Into):
            yield "create"
        elif isinstance(node, exp.Lock):
            yield "lock"
        elif isinstance(node, exp.PropertyEQ) and node.parent is not None and isinstance(node.this, exp.Parameter):
            yield "set"


def _tables(nodes: Iterable[exp.Expr]) -> Iterator[tuple[str, ...]]:
    for node in nodes:
        if isinstance(node, exp.Table) and node.name and not _is_cte(node):
            yield tuple(part.name.lower() for part in node.parts)


def _is_cte(table: exp.Table) -> bool:
    """Return whether a name is that of a WITH that is in force there, and so no table's."""
    if len(table.parts) > 1:
        return False
    name, below, node = table.name.lower(), table, table.parent
    child: exp.Expr = below
    inside: exp.CTE | None = None
    while node is not None:
        if isinstance(node, exp.CTE):
            inside = node
        found = node.args.get("with_") or node.args.get("with")
        if isinstance(found, exp.With):
            own = [cte.alias.lower() for cte in found.expressions]
            if child is found and inside in found.expressions and not found.args.get("recursive"):
                own = own[: found.expressions.index(inside)]
            if name in own:
                return True
        child, node = node, node.parent
    return False


def _functions(tokens: Sequence[Token], nodes: Iterable[exp.Expr], dialect: str) -> Iterator[str]:
    """Return the functions that do more than compute, by their names as written: sqlglot renames those it knows."""
    harmless, aliases = HARMLESS[dialect], set[str]()
    for node in nodes:
        if isinstance(node, exp.Anonymous) and not isinstance(node.parent, exp.Dot):
            if str(node.this).lower() not in harmless:
                yield str(node.this).lower()
        elif isinstance(node, exp.NextValueFor):
            yield "next value for"
        elif isinstance(node, exp.TableAlias) and node.columns:
            aliases.add(node.name.lower())
    for number, token in enumerate(tokens[:-1]):
        if tokens[number + 1].token_type is TokenType.L_PAREN and token.text:
            name, before = token.text.lower(), [t.text.lower() for t in tokens[max(number - 2, 0) : number]]
            owner = before[0] if before[1:] == ["."] else ""
            if owner not in ("", "pg_catalog"):
                yield f"{owner}.{name}"
            elif name not in harmless and name not in aliases and not _is_grammar(token, before):
                yield name


def _is_grammar(token: Token, before: list[str]) -> bool:
    if token.token_type in (TokenType.STRING, TokenType.NUMBER) or not (
        token.text[0].isalpha() or token.text[0] == "_"
    ):
        return True
    return token.token_type is not TokenType.IDENTIFIER and (
        token.text.lower() in _GRAMMAR or before[-1:] == ["tablesample"]
    )
