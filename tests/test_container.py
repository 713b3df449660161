"""The image is built step by step, and run as docker-compose.yml says: its user, its capabilities, a read-only root."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.docker_compose import LIMIT, Service, read_compose
from tests.support.docker_image import Layer, build
from tests.support.harness import REPOSITORY
from tests.support.postgres import Postgres
from tests.support.system_needs import needs

pytestmark = pytest.mark.timeout(240)  # the image is built by the first that asks
COMPOSE = REPOSITORY / "docker-compose.yml"
TRANSPARENT = REPOSITORY / "deploy" / "compose.transparent.yml"
SOCKET = ".s.PGSQL.5432"
LOOPBACK = ("ip link set lo up",)
# Every address is one that packets have a way to, as in a container with a default route; it ends here.
OUTSIDE = (*LOOPBACK, "ip route add local 0.0.0.0/0 dev lo")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED FOR WANT OF root: the image is built in overlays")


def wait_for(file: Path, service: Service, first: int) -> None:
    deadline = time.monotonic() + LIMIT
    while not file.exists():
        assert time.monotonic() < deadline, service.shown.read_text()
        assert Path(f"/proc/{first}").exists(), service.shown.read_text()
        time.sleep(0.05)


def wait_for_words(words: str, service: Service) -> None:
    deadline = time.monotonic() + LIMIT
    while words not in service.shown.read_text():
        assert time.monotonic() < deadline, service.shown.read_text()
        time.sleep(0.05)


@dataclass
class Running:
    """The sidecar as compose runs it, with a database, and its agent."""

    interlock: Service
    agent: Service
    first: int
    folder: Path

    @property
    def share(self) -> Path:
        return self.folder / "certificate"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Layer:
    return build(REPOSITORY / "Dockerfile", tmp_path_factory.mktemp("image"))


class Composed:
    """The services of a compose file, on the image, with a real database behind a socket."""

    def __init__(self, file: Path, image: Layer, folder: Path, postgres: Postgres) -> None:
        self.folder, self._image = folder, image
        self._said = read_compose(file)["services"]
        for name in ("state", "certificate"):
            (folder / name).mkdir()
        url = postgres.new_database(migrated=False)
        (folder / "database_url").write_text(url.partition("?")[0] + "?host=/run/postgresql\n")
        self._socket = Path(url.partition("host=")[2], SOCKET)

    def interlock(self, *network: str) -> Service:
        said = self._said["interlock"]
        said = said | {"volumes": [*said["volumes"], f"socket:/run/postgresql/{SOCKET}"]}
        volumes = {name: self.folder / name for name in ("state", "certificate")} | {"socket": self._socket}
        secrets = {"database_url": self.folder / "database_url"}
        return Service(self._image, said, volumes, secrets, self.folder / "interlock.out", network=network or LOOPBACK)

    def gateway(self) -> Service:
        return Service(self._image, self._said["gateway"], {}, shown=self.folder / "gateway.out")

    def agent(self) -> Service:
        code, certificate = REPOSITORY / "examples" / "agent", self.folder / "certificate"
        volumes = {"./examples/agent": code, "../examples/agent": code, "certificate": certificate}
        return Service(Layer(self.folder / "agent"), self._said["agent"], volumes, hosts="127.0.0.1 interlock\n")


@pytest.fixture(scope="module")
def running(image: Layer, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    composed = Composed(COMPOSE, image, tmp_path_factory.mktemp("compose"), postgres)
    interlock = composed.interlock()
    with interlock.running() as first:
        wait_for(composed.folder / "state" / "run.json", interlock, first)
        yield Running(interlock, composed.agent(), first, composed.folder)


@needs_root
@needs("setpriv", "nsenter")
class TestSidecar:
    def test_it_runs_as_its_own_user_without_any_capability(self, running: Running) -> None:
        status = Path(f"/proc/{running.first}/status").read_text()
        assert re.search(r"^Uid:\t10001\t10001\t10001\t10001$", status, re.MULTILINE)
        assert re.search(r"^NoNewPrivs:\t1$", status, re.MULTILINE)
        assert set(re.findall(r"^Cap(?:Inh|Prm|Eff|Bnd|Amb):\t(\w+)$", status, re.MULTILINE)) == {"0" * 16}

    def test_its_health_check_says_that_it_runs(self, running: Running) -> None:
        check = running.interlock.layer.told["HEALTHCHECK"].partition("CMD ")[2]
        done = running.interlock.exec(running.first, json.loads(check))
        assert done.returncode == 0, done.stdout + done.stderr

    def test_its_root_cannot_be_written(self, running: Running) -> None:
        done = running.interlock.exec(running.first, ["touch", "/etc/x", "/opt/interlock/x"], user="0")
        assert done.stderr.count("Read-only file system") == 2

    def test_its_policy_is_the_profile_and_what_a_sidecar_needs(self, running: Running) -> None:
        assert json.loads((running.folder / "state" / "run.json").read_text())["profile"] == "balanced"
        done = running.interlock.exec(running.first, ["ls", "/etc/interlock/policies"])
        assert done.stdout.split() == ["sidecar.yaml"]

    def test_the_database_was_migrated_before_it_started(self, running: Running, postgres: Postgres) -> None:
        assert "0001" in running.interlock.shown.read_text()

    def test_the_agent_gets_the_certificate_and_never_the_key(self, running: Running) -> None:
        assert sorted(path.name for path in running.share.iterdir()) == ["bundle.pem", "ca.pem", "node-proxy.cjs"]
        for path in running.share.iterdir():
            assert path.stat().st_mode & 0o777 == 0o644
            assert "PRIVATE KEY" not in path.read_text()
        assert "PRIVATE KEY" in "".join(
            path.read_text() for path in (running.folder / "state" / "ca").iterdir() if path.is_file()
        )

    def test_the_agent_is_refused_in_tls_by_that_certificate_and_finds_no_way_around(self, running: Running) -> None:
        done = running.agent.run(network=running.first)
        assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "held"), done.stdout + done.stderr


@needs_root
@needs("setpriv", "nsenter", "nft", "ip")
class TestTransparentSidecar:
    def test_an_agent_in_its_network_is_led_to_the_proxy_and_has_no_other_way(
        self, image: Layer, postgres: Postgres, tmp_path: Path
    ) -> None:
        composed = Composed(TRANSPARENT, image, tmp_path, postgres)
        interlock, gateway, agent = composed.interlock(*OUTSIDE), composed.gateway(), composed.agent()
        agent.layer.write("/etc/resolv.conf", "nameserver 10.99.0.53\n", 0o644)
        with interlock.running() as first:
            wait_for(tmp_path / "state" / "run.json", interlock, first)
            status = Path(f"/proc/{first}/status").read_text()
            assert re.search(r"^Uid:\t10001\t10001\t10001\t10001$", status, re.MULTILINE)
            assert set(re.findall(r"^Cap(?:Inh|Prm|Eff|Bnd|Amb):\t(\w+)$", status, re.MULTILINE)) == {"0" * 16}
            alone = agent.run(network=first)
            assert "Refused by Interlock" not in alone.stdout
            assert "REACHED" not in alone.stdout
            with gateway.running(network=first):
                wait_for_words("sends connections", gateway)
                done = agent.run(network=first)
        assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "held"), done.stdout + done.stderr

    def test_without_the_right_to_confine_it_does_not_start(
        self, image: Layer, postgres: Postgres, tmp_path: Path
    ) -> None:
        interlock = Composed(TRANSPARENT, image, tmp_path, postgres).interlock()
        interlock.said = interlock.said | {"cap_add": ["SETUID", "SETGID", "SETPCAP"]}
        done = interlock.run()
        assert done.returncode == 1
        assert "give the container NET_ADMIN" in done.stderr
        assert not (tmp_path / "state" / "run.json").exists()
