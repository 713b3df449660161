"""What pydantic's models are made with leaves no copy of the table of modules behind."""

from __future__ import annotations

import subprocess
import sys

from proxy.core.defaults import empty_dict, empty_list
from tests.support.harness import REPOSITORY

COPIES = """
import gc
gc.disable()
from proxy.policy.rules import PolicyFile
PolicyFile.model_validate({"version": 1})
print(sum(type(found) is dict and "proxy.core.defaults" in found for found in gc.get_objects()))
"""


def test_each_default_is_a_new_one():
    assert empty_list() == []
    assert empty_list() is not empty_list()
    assert empty_dict() == {}
    assert empty_dict() is not empty_dict()


def test_a_policys_models_leave_no_copy_of_the_table_of_modules_behind():
    done = subprocess.run(
        [sys.executable, "-c", COPIES], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "1\n", done.stdout + done.stderr  # the table itself
