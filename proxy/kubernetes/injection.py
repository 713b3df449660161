"""What the injector adds to a pod: containers, volumes, and what the agent's own containers get. From a YAML file.

The Helm chart renders the file into a ConfigMap, so that one template says what a sidecar is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from proxy.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

type Manifest = dict[str, Any]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel)


class ForAgents(_Part):
    """What each of the pod's own containers gets."""

    env: tuple[Manifest, ...] = Field((), description="Variables, where the container does not set them itself.")
    volume_mounts: tuple[Manifest, ...] = Field((), description="Mounts; each must be read-only.")

    @model_validator(mode="after")
    def _nothing_to_write(self) -> Self:
        for mount in self.volume_mounts:
            if mount.get("readOnly") is not True:
                raise ValueError(f"the mount of {mount.get('name')!r} is not read-only; write readOnly: true")
        return self


class Injection(_Part):
    """What is added to every pod. The containers start before all others, in this order."""

    init_containers: tuple[Manifest, ...] = Field(min_length=1, description="Rules, proxy and gateway.")
    volumes: tuple[Manifest, ...] = Field((), description="Volumes of these containers.")
    agents: ForAgents = Field(
        default_factory=lambda: ForAgents.model_validate({}), description="What each of the pod's own containers gets."
    )
    proxy_user: int = Field(10001, gt=0, description="The one user whose traffic the rules let out.")
    agent_user: int = Field(10002, gt=0, description="User of containers that name none.")
    opt_out: bool = Field(default=False, description="Whether a pod's annotation may ask for no sidecar.")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.proxy_user == self.agent_user:
            raise ValueError(f"proxyUser and agentUser are both {self.proxy_user}; the rules tell them apart by user")
        if not all(part.get("name") for part in (*self.init_containers, *self.volumes)):
            raise ValueError("every container and volume needs a name")
        return self

    @property
    def container_names(self) -> frozenset[str]:
        return frozenset(each["name"] for each in self.init_containers)

    @property
    def volume_names(self) -> frozenset[str]:
        return frozenset(each["name"] for each in self.volumes)

    @property
    def agents_volumes(self) -> frozenset[str]:
        """The volumes that the pod's own containers may mount."""
        return frozenset(each["name"] for each in self.agents.volume_mounts)


def load_injection(file: Path) -> Injection:
    """Read the file of the setting. Raises ConfigError."""
    try:
        content = YAML(typ="safe", pure=True).load(file.read_bytes())
    except (YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not YAML: {error}") from None
    try:
        return Injection.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ConfigError(f"{file}: {where}: {first['msg']}; compare it with what the Helm chart renders") from None
