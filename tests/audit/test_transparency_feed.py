"""What is signed gets into the transparency log, once, later if need be, and holds up nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.audit.checkpoint_signer import CheckpointSigner
from proxy.audit.checkpoints import CHECKPOINT_FILE, Checkpoint
from proxy.audit.rekor_client import LogAwayError, RekorClient
from proxy.audit.rekor_entry import LogKey
from proxy.audit.transparency import PROBLEM_FILE, PROOF_FILE, digest_of, read_problem, read_proofs
from proxy.audit.transparency_feed import EntryKey, TransparencyFeed, TransparencyThread, open_transparency
from proxy.config import Settings
from proxy.core.event import Head
from proxy.errors import ConfigError
from tests.support.rekor_server import RekorServer, start_rekor
from tests.support.timeouts import PATIENCE


@pytest.fixture
def server() -> Iterator[RekorServer]:
    with start_rekor() as log:
        yield log


class Scene:
    """A state folder whose checkpoints are posted; `now` is its clock."""

    def __init__(self, folder: Path, server: RekorServer) -> None:
        self.folder = folder
        self.server = server
        self.now = 1000.0
        self.signer = CheckpointSigner(folder, folder / CHECKPOINT_FILE)
        self.feed = self.new_feed()

    def new_feed(self, timeout: float = PATIENCE) -> TransparencyFeed:
        client, key = RekorClient(self.server.url, timeout), LogKey.parse(self.server.pem)
        return TransparencyFeed(self.folder, self.folder / CHECKPOINT_FILE, client, key, 600.0, lambda: self.now)

    def sign(self, seq: int, writer: str = "w", kind: str = "head") -> str:
        assert self.signer.sign(kind, [Head(writer, seq, f"{seq:064x}")])  # type: ignore[arg-type]
        return (self.folder / CHECKPOINT_FILE).read_text().splitlines()[-1]

    def round(self) -> list[str]:
        """Return the hashes of what came into the log."""
        before = len(self.server.bodies)
        assert self.feed.leads()
        self.feed.round()
        return self.server.digests[before:]

    def proven(self) -> list[str]:
        found = read_proofs([self.folder / PROOF_FILE], [LogKey.parse(self.server.pem)])
        assert found.broken == []
        return [digest_of(line.decode()) for line in found.lines]


@pytest.fixture
def scene(tmp_path: Path, server: RekorServer) -> Iterator[Scene]:
    made = Scene(tmp_path, server)
    yield made
    made.feed.close()


def test_of_each_writer_the_newest_head_is_posted_every_so_often(scene: Scene) -> None:
    assert scene.round() == []
    scene.sign(1)
    newest, other = scene.sign(2), scene.sign(1, "v")
    assert sorted(scene.round()) == sorted([digest_of(newest), digest_of(other)])
    third = scene.sign(3)
    assert scene.round() == []
    scene.now += 600
    assert scene.round() == [digest_of(third)]
    scene.now += 600
    assert scene.round() == []
    fourth = scene.sign(4)
    scene.now -= 86_400  # the clock is set back
    assert scene.round() == [digest_of(fourth)]
    assert sorted(scene.proven()) == sorted(map(digest_of, (newest, other, third, fourth)))


def test_what_excuses_missing_events_is_posted_each_time(scene: Scene) -> None:
    lines = [scene.sign(4, kind="pruned"), scene.sign(6, kind="rejected"), scene.sign(7, kind="rejected")]
    assert scene.round() == [digest_of(line) for line in lines]
    assert scene.round() == []


def test_what_was_not_posted_before_a_crash_is_posted_after_it_and_nothing_twice(scene: Scene) -> None:
    scene.sign(1)
    scene.sign(2, kind="rejected")
    assert len(scene.round()) == 2
    late = scene.sign(3)
    scene.feed.close()
    scene.feed = scene.new_feed()
    assert scene.round() == [digest_of(late)]
    assert len(scene.proven()) == 3


def test_an_answer_that_was_lost_leaves_one_entry_and_its_proof(scene: Scene) -> None:
    """Killed between the log's commit and the proof's."""
    line = scene.sign(1)
    RekorClient(scene.server.url).post(EntryKey(scene.folder / "keys/transparency-signing.pem").proposal(line))
    assert scene.round() == []
    assert scene.proven() == scene.server.digests == [digest_of(line)]


def test_a_line_that_is_just_being_written_is_read_when_it_is_whole(scene: Scene) -> None:
    line = scene.sign(1)
    file = scene.folder / CHECKPOINT_FILE
    file.write_text(line[:50])
    assert scene.round() == []
    file.write_text(f"{line}\n")
    assert scene.round() == [digest_of(line)]


def test_what_others_put_into_the_file_is_not_posted(scene: Scene, tmp_path: Path) -> None:
    stranger = CheckpointSigner(tmp_path / "other", scene.folder / CHECKPOINT_FILE)
    assert stranger.sign("head", [Head("w", 900, "0" * 64)])
    file = scene.folder / CHECKPOINT_FILE
    file.write_text(file.read_text() + '[]\n{"version": 1}\n7\n\xff\n')
    assert scene.round() == []
    own = scene.sign(5)
    assert scene.round() == [digest_of(own)]


def test_a_log_that_is_away_is_told_once_and_gets_everything_later(scene: Scene) -> None:
    scene.server.status = 503
    line = scene.sign(1)
    for _ in range(2):
        with pytest.raises(LogAwayError, match="answered 503") as error:
            scene.round()
        scene.feed.tell(str(error.value))
    scene.now += 60
    assert (read_problem(scene.folder, scene.now) or "").startswith("it has taken no checkpoints for 60 s: ")
    scene.server.status = 0
    assert scene.round() == [digest_of(line)]
    scene.feed.tell(None)
    assert read_problem(scene.folder, scene.now) is None


def test_what_the_log_never_takes_holds_up_nothing_else(scene: Scene) -> None:
    bad, other, head = scene.sign(1, kind="rejected"), scene.sign(2, kind="rejected"), scene.sign(3)
    scene.server.refuse = lambda proposed: proposed["spec"]["data"]["hash"]["value"] == digest_of(bad)
    for _ in range(2):
        with pytest.raises(LogAwayError, match="400"):
            scene.round()
    assert scene.server.digests == [digest_of(other), digest_of(head)]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"verification": {}}, "no entry of a log with its proof"),
        ({"integratedTime": 1}, "signature over its time is wrong"),
        ({"logID": "00"}, "it is of log '00'"),
    ],
)
def test_a_proof_that_proves_nothing_is_not_kept(scene: Scene, change: dict[str, object], why: str) -> None:
    scene.sign(1)
    scene.server.change = lambda entry: entry | change
    with pytest.raises(ConfigError, match=f"gave no valid proof: .*{why}"):
        scene.round()
    assert not (scene.folder / PROOF_FILE).exists()
    scene.server.change = lambda entry: entry
    scene.round()
    assert len(scene.proven()) == 1


def test_of_processes_with_one_folder_one_posts(scene: Scene) -> None:
    assert scene.feed.leads()
    other = scene.new_feed()
    assert not other.leads()
    scene.feed.close()
    assert other.leads()
    other.close()


def test_the_key_of_entries_is_of_its_owner_alone_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "transparency-signing.pem"
    one, two = (EntryKey(path).proposal("a")["spec"]["signature"]["publicKey"] for _ in range(2))
    assert one == two
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("x")
    with pytest.raises(ConfigError, match="is no key"):
        EntryKey(path)


def settings(folder: Path, server: RekorServer, **more: object) -> Settings:
    (folder / "log.pem").write_bytes(server.pem)
    return Settings.model_validate({"state_dir": folder, "transparency_log": server.url} | more)


def test_a_thread_posts_and_stops_while_the_log_holds_its_answer(tmp_path: Path, server: RekorServer) -> None:
    scene = Scene(tmp_path, server)
    scene.sign(1)
    server.held = threading.Event()
    thread = open_transparency(settings(tmp_path, server, transparency_key=tmp_path / "log.pem"))
    assert thread is not None
    assert server.asked.wait(PATIENCE)
    thread.stop()  # does not wait for the answer, which comes when the server is stopped
    # And signing does not wait for it either.
    scene.sign(2)
    assert not (tmp_path / PROOF_FILE).exists()


def test_a_thread_tries_again_and_tells(tmp_path: Path, server: RekorServer) -> None:
    scene = Scene(tmp_path, server)
    done = threading.Event()
    server.refuse = lambda _: done.set() or False  # type: ignore[func-returns-value]
    server.status = 503
    scene.sign(1)
    thread = TransparencyThread(scene.feed, look=0.01, first_pause=0.01)
    try:
        assert server.asked.wait(PATIENCE)
        server.status = 0
        assert done.wait(PATIENCE)
    finally:
        thread.stop()


def test_without_the_logs_key_there_is_no_start(tmp_path: Path, server: RekorServer) -> None:
    with pytest.raises(ConfigError, match="needs transparency_key"):
        open_transparency(settings(tmp_path, server))
    (tmp_path / "log.pem").write_text("none")
    with pytest.raises(ConfigError, match="cannot be read as a transparency log's public key"):
        open_transparency(
            Settings.model_validate(
                {"state_dir": tmp_path, "transparency_log": server.url, "transparency_key": tmp_path / "log.pem"}
            )
        )


def test_what_an_earlier_run_told_is_forgotten_without_a_log(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / PROBLEM_FILE).write_text(json.dumps({"problem": "away", "since": 1.0}))
    assert read_problem(tmp_path, 2.0) == "it has taken no checkpoints for 1 s: away"
    assert open_transparency(Settings.model_validate({"state_dir": tmp_path})) is None
    assert read_problem(tmp_path, 2.0) is None


def test_a_checkpoint_is_posted_exactly_as_it_is_in_the_file(scene: Scene) -> None:
    """So that `sha256sum` of the line finds it in the log."""
    line = scene.sign(1)
    assert Checkpoint(**{name: value for name, value in json.loads(line).items() if name != "version"}).line() == line
    assert scene.round() == [digest_of(line)]
