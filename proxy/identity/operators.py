"""Operators and their tokens: who may approve what an agent proposes.

A credential of its own: an agent's token is worth nothing here, nor an
operator's at the proxy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.errors import ConfigError
from proxy.identity.token_file import TokenBook
from proxy.system.secret_files import make_private

if TYPE_CHECKING:
    from pathlib import Path

FIRST = "operator"


class OperatorBook(TokenBook):
    """The operators of one state folder."""

    role = "operator"
    prefix = "ilo_"

    def __init__(self, state_dir: Path) -> None:
        super().__init__(state_dir)
        self.token_file = state_dir / "keys" / "operator.token"

    def ensure(self) -> None:
        """Make the first operator, with its token in a file, where there never was any.

        The file is written first: where a crash comes between, the next start takes the
        token from it. Raises ConfigError where the file holds none.
        """
        if self.path.exists():
            return
        make_private(self.token_file, f"{self.new_token()}\n".encode())
        token = read_token(self.token_file)
        if not token.startswith(self.prefix):
            raise ConfigError(f"{self.token_file} holds no operator's token; delete it to have a new one made")
        with self._changing() as entries:
            if not entries:
                entries[FIRST] = self._entry(FIRST, token)

    def revoke(self, name: str) -> None:
        """Remove an operator, and the token file where it was that operator's."""
        super().revoke(name)
        if self.token_file.exists() and self.holder(read_token(self.token_file)) is None:
            self.token_file.unlink()


def read_token(path: Path) -> str:
    """Return the token in a file, without the line's end.

    Raises ConfigError where it cannot be read as one.
    """
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the token file {path} cannot be read ({error}); name another with --token-file") from error
