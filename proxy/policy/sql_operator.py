"""The `sql` operator: what a text of SQL does. Pure, no I/O.

It holds surely (for an allow, or under `not`) where every statement is of the given kinds, uses only the given tables,
and calls no function that does more than compute, except the given ones. It may hold (for a deny) where one statement
is of the kinds, and one table of the tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proxy.policy.globs import compile_globs
from proxy.policy.views import MAY, NO, YES, Test, WrongTypeError, gather, judge_each

if TYPE_CHECKING:
    from proxy.policy.arg_path import ArgPath
    from proxy.policy.conditions import Sql
    from proxy.policy.sql_statements import SqlText


def sql(arg: ArgPath, operand: Sql) -> Test:
    # sqlglot takes half a second to import, and most policies need none of it.
    from proxy.policy.sql_statements import read_sql  # noqa: PLC0415

    def view(value: Any) -> SqlText:
        if not isinstance(value, str):
            raise WrongTypeError("SQL", value)
        return read_sql(value, operand.dialect)

    return judge_each(gather(arg, f"sql-{operand.dialect}", view), SqlJudge(operand), with_problems=True)


class SqlJudge:
    """Compares what a text does with one operand."""

    def __init__(self, operand: Sql) -> None:
        self.kinds = frozenset(operand.statements or ())
        self.tables = [pattern.lower() for pattern in operand.tables or ()]
        self.any_table = operand.tables is None
        self.fits = compile_globs(self.tables)
        self.fits_bare = compile_globs([pattern.rpartition(".")[2] for pattern in self.tables])
        self.may_call = compile_globs([name.lower() for name in operand.functions or ["-"]])

    def __call__(self, view: SqlText) -> int:
        kinds_fit = not self.kinds or view.kinds <= self.kinds
        tables_fit = self.any_table or all(self.fits(".".join(table)) for table in view.tables)
        # By tables alone, SQL without any is none of the rule's business.
        tables_fit = tables_fit and (bool(self.kinds) or bool(view.tables))
        if view.problem is None and kinds_fit and tables_fit and all(map(self.may_call, view.functions)):
            return YES
        kinds_may = not self.kinds or not view.kinds.isdisjoint(self.kinds)
        return MAY if kinds_may and (self.any_table or any(map(self._may_be, view.tables))) else NO

    def _may_be(self, table: tuple[str, ...]) -> bool:
        # Without a schema it may be a table of any; `hr.*` is also what `salaries` may mean.
        return self.fits(".".join(table)) or (len(table) == 1 and self.fits_bare(table[0])) or self.fits(table[-1])
