"""Which environment variables hold secrets."""

from __future__ import annotations

from proxy.config import ENV_PREFIX
from proxy.core import secret_variables


def test_every_name_of_the_module_is_one_of_a_secret() -> None:
    names = {value for name, value in vars(secret_variables).items() if name.isupper() and isinstance(value, str)}
    assert names == secret_variables.SECRET_VARIABLES
    assert all(name.startswith(ENV_PREFIX) for name in names)
