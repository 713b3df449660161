"""Posts signed checkpoints to a transparency log, in a thread of its own, and keeps the proofs that come back.

What is to be posted is read from the checkpoint file, so nothing is forgotten in a crash or while the log is away; no
event, no signature and no other place waits for the log. Of each writer the newest head is posted, at most one in
`transparency_seconds`: it vouches for all events before it. What excuses missing events (`pruned`, `rejected`) is
posted each time.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import structlog
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from proxy.audit.checkpoints import CHECKPOINT_FILE, Checkpoint, append_lines, parse, read_lines
from proxy.audit.log_thread import Retries
from proxy.audit.rekor_client import RekorClient
from proxy.audit.rekor_entry import BadEntryError, propose
from proxy.audit.signing_keys import AuditKeys
from proxy.audit.transparency import PROOF_FILE, Proof, digest_of, parse_proof, read_log_key, write_problem
from proxy.errors import ConfigError
from proxy.system.secret_files import make_private, read_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import TextIOWrapper
    from pathlib import Path

    from proxy.audit.rekor_entry import LogKey
    from proxy.config import Settings

log = structlog.get_logger("interlock.transparency")

LOOK_SECONDS = 5.0
FIRST_PAUSE = 10.0
LONGEST_PAUSE = 600.0
STOP_SECONDS = 0.5
KEY_FILE = "keys/transparency-signing.pem"
LOCK_FILE = "checkpoints/transparency.lock"


class EntryKey:
    """Signs what is posted: ECDSA P-256, in the state folder.

    A log that has the hash of a text alone cannot check Ed25519 over that text. So entries have a key of their own.
    They prove when a checkpoint was there; that it is ours, the checkpoint's own signature proves.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            made = ec.generate_private_key(ec.SECP256R1())
            form, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            make_private(path, made.private_bytes(serialization.Encoding.PEM, form, none))
        try:
            key = serialization.load_pem_private_key(read_private(path), None)
        except ValueError as error:
            raise ConfigError(f"{path} is no key; delete it to make a new one") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ConfigError(f"{path} is no ECDSA key; delete it to make a new one")
        self._key = key

    def proposal(self, line: str) -> dict[str, Any]:
        """Return the entry to post about a checkpoint's line."""
        spki = serialization.PublicFormat.SubjectPublicKeyInfo
        public = self._key.public_key().public_bytes(serialization.Encoding.PEM, spki)
        return propose(digest_of(line), self._key.sign(line.encode(), ec.ECDSA(hashes.SHA256())), public)


class TransparencyFeed:
    """Reads checkpoints, posts them, and keeps the proofs. Not for several threads."""

    def __init__(
        self,
        state_dir: Path,
        file: Path,
        client: RekorClient,
        key: LogKey,
        every: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._state_dir = state_dir
        self._file = file
        self._proofs = state_dir / PROOF_FILE
        self._client = client
        self._key = key
        self._every = every
        self._clock = clock
        self._keys = AuditKeys(state_dir)
        self._read = 0  # how many bytes of the file were read
        self._logged: dict[str, int] = {}  # the newest head of each writer that the log has
        self._known: set[str] = set()  # other statements that the log has
        self._posted_at: dict[str, float] = {}
        # What is to be posted: of each writer the newest head, by its name, and each other statement, by its text.
        self._pending: dict[str, Checkpoint] = {}
        self._lock: TextIOWrapper | None = None
        self._failing: bool | None = None  # as it was told last
        self.posted = 0

    def leads(self) -> bool:
        """Return whether this process posts: of those with one state folder, one does."""
        if self._lock is None:
            path = self._state_dir / LOCK_FILE
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = path.open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                return False
            self._lock = lock
            self._remember()
        return True

    def round(self) -> None:
        """Post what is due. Raises InterlockError or OSError; what is left is posted another time."""
        self._look()
        for name, one in list(self._pending.items()):
            # A clock that was set back must not stop it.
            if one.kind == "head" and 0 <= self._clock() - self._posted_at.get(name, float("-inf")) < self._every:
                continue
            # Behind all others, if it fails: what the log never takes holds up nothing else.
            self._pending[name] = self._pending.pop(name)
            if any(self._valid([one.line().encode()])):
                self._post(one)
            self._pending.pop(name)

    def tell(self, problem: str | None) -> None:
        """Say once that the log fails, and once that it works again. Raises OSError."""
        before, self._failing = self._failing, problem is not None
        if before is self._failing:
            return
        if problem is not None:
            log.warning("the transparency log takes no checkpoints; they are posted later", error=problem)
        elif before:
            log.info("the transparency log takes checkpoints again")
        write_problem(self._state_dir, problem, self._clock())

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def _remember(self) -> None:
        """Read which checkpoints the log has already."""
        for line in read_lines(self._proofs) if self._proofs.exists() else ():
            try:
                proof = parse_proof(line)
                proof.check(self._key)
            except BadEntryError:
                continue  # it proves nothing, so it is posted again; `audit verify` tells of it
            for one in self._valid([proof.checkpoint.encode()]):
                self._note(one)

    def _note(self, one: Checkpoint) -> None:
        if one.kind == "head":
            self._logged[one.writer] = max(one.seq, self._logged.get(one.writer, -1))
        else:
            self._known.add(str(one))

    def _look(self) -> None:
        """Read what was signed since the last time."""
        if not self._file.exists():
            return
        with self._file.open("rb") as file:
            if file.seek(0, 2) < self._read:
                self._read = 0  # it was replaced by a shorter one
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # it is just being written
                self._read += len(line)
                self._take(line)

    def _take(self, line: bytes) -> None:
        # Signatures are checked when it is posted: of a long file, few lines are.
        try:
            said = json.loads(line)
            said.pop("version")
            one = Checkpoint(**said)
            if one.kind == "head" and one.seq > self._logged.get(one.writer, -1):
                self._pending[one.writer] = one
            elif one.kind != "head" and str(one) not in self._known:
                self._pending[str(one)] = one
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return  # `audit verify` tells of it

    def _valid(self, lines: list[bytes]) -> Iterator[Checkpoint]:
        """Yield what our own keys signed: a line that somebody put there is not ours to publish."""
        for one in parse(lines, str(self._file), self._keys.public()):
            if isinstance(one, Checkpoint):
                yield one

    def _post(self, one: Checkpoint) -> None:
        line = one.line()
        entry_id, entry = self._client.post(EntryKey(self._state_dir / KEY_FILE).proposal(line))
        proof = Proof(line, self._client.url, entry_id, entry)
        try:
            proof.check(self._key)
        except BadEntryError as error:
            raise ConfigError(f"{self._client.url} gave no valid proof: {error}") from error
        append_lines(self._proofs, [proof.line()])
        self._note(one)
        self.posted += 1
        if one.kind == "head":
            self._posted_at[one.writer] = self._clock()


class TransparencyThread:
    """Runs a feed until it is stopped. Never raises: what fails is told and tried again, less and less often."""

    def __init__(self, feed: TransparencyFeed, look: float = LOOK_SECONDS, first_pause: float = FIRST_PAUSE) -> None:
        self._feed = feed
        self._look = look
        self._retries = Retries(first_pause, LONGEST_PAUSE)
        self._end = threading.Event()
        # A daemon: the log may take its time to answer, and a stop does not wait for that.
        self._thread = threading.Thread(target=self._run, name="audit-transparency", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it. What was signed since is posted after the next start."""
        self._end.set()
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        wait = 0.0
        while not self._end.wait(wait):
            wait = self._step()
        self._feed.close()

    def _step(self) -> float:
        """Post what is due; return how long to wait."""
        before, problem = self._feed.posted, None
        try:
            if not self._feed.leads():
                return self._look
            self._feed.round()
        except Exception as error:  # noqa: BLE001  whatever it is, it is told and tried again
            problem = str(error) or type(error).__name__
        with contextlib.suppress(OSError):
            self._feed.tell(problem)
        if problem is None or self._feed.posted > before:
            self._retries.worked()
        return self._look if problem is None else self._retries.pause()


def open_transparency(settings: Settings) -> TransparencyThread | None:
    """Start posting where the settings name a log. Raises ConfigError where its key is missing or none."""
    if settings.transparency_log is None:
        write_problem(settings.state_dir, None, 0.0)  # what an earlier run said of a log that is not used any more
        return None
    file = settings.checkpoint_file or settings.state_dir / CHECKPOINT_FILE
    client, key = RekorClient(settings.transparency_log), log_key(settings)
    feed = TransparencyFeed(settings.state_dir, file, client, key, settings.transparency_seconds)
    return TransparencyThread(feed)


def log_key(settings: Settings) -> LogKey:
    """Return the key of the settings' log. Raises ConfigError."""
    if settings.transparency_key is None:
        raise ConfigError("setting transparency_log needs transparency_key: a file with the log's public key (PEM)")
    return read_log_key(settings.transparency_key)
