"""Several proxies with folders of their own on one Postgres, with the keys that replicas have to share."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.harness import Interlock, start_interlock

SHARED_KEYS = ("seal.key", "mask.key", "digest.key", "flows.key")
SECRET = {"INTERLOCK_COMMIT_SECRET": secrets.token_hex(32)}


def share_keys(folder: Path, names: Sequence[str]) -> None:
    """Put the same keys into the state folder of each replica below `folder`."""
    made = folder / "shared-keys"
    made.mkdir(parents=True)
    for name in SHARED_KEYS:
        (made / name).touch(0o600)
        (made / name).write_bytes(secrets.token_bytes(32))
    for each in names:
        keys = folder / each / "state" / "keys"
        keys.mkdir(parents=True, mode=0o700)
        for name in SHARED_KEYS:
            shutil.copy2(made / name, keys / name)


@contextlib.contextmanager
def start_replicas(
    folder: Path, database_url: str, count: int, policy: str, flags: Sequence[str] = ()
) -> Iterator[list[Interlock]]:
    """Run so many proxies on one database until the block ends."""
    names = [f"replica-{number}" for number in range(1, count + 1)]
    share_keys(folder, names)
    with contextlib.ExitStack() as running:
        yield [
            running.enter_context(
                start_interlock(
                    folder / name, policy=policy, flags=["--database-url", database_url, *flags], env=SECRET
                )
            )
            for name in names
        ]
