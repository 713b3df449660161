from __future__ import annotations

import base64
import copy
import json
from typing import TYPE_CHECKING, Any

import pytest

from proxy.kubernetes.admission import ReviewError, mutate, validate
from proxy.kubernetes.pod import hold

if TYPE_CHECKING:
    from proxy.kubernetes.injection import Injection


def review(pod: Any, **request: Any) -> dict[str, Any]:
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    asked = {"uid": "u-1", "kind": kind, "operation": "CREATE", "object": pod, **request}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}


def test_the_patch_gives_the_held_pod(pod: dict[str, Any], injection: Injection) -> None:
    answer = mutate(review(pod), injection)
    response = answer["response"]
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert (response["uid"], response["allowed"], response["patchType"]) == ("u-1", True, "JSONPatch")
    (change,) = json.loads(base64.b64decode(response["patch"]))
    assert change == {"op": "replace", "path": "/spec", "value": hold(pod, injection)["spec"]}


def test_of_a_pod_that_runs_only_a_debugging_container_is_changed(pod: dict[str, Any], injection: Injection) -> None:
    before = hold(pod, injection)
    before["spec"]["initContainers"][0]["terminationMessagePath"] = "/dev/termination-log"
    after = copy.deepcopy(before)
    after["spec"]["ephemeralContainers"] = [{"name": "debugger", "image": "busybox:1"}]
    response = mutate(review(after, operation="UPDATE", oldObject=before), injection)["response"]
    (change,) = json.loads(base64.b64decode(response["patch"]))
    assert {**change["value"], "ephemeralContainers": None} == {**before["spec"], "ephemeralContainers": None}
    assert change["value"]["ephemeralContainers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    patched = review({**after, "spec": change["value"]}, operation="UPDATE", oldObject=before)
    assert validate(patched, injection)["response"]["allowed"]
    assert not validate(review(after, operation="UPDATE", oldObject=before), injection)["response"]["allowed"]


def test_the_sidecars_image_cannot_be_changed_in_a_pod_that_runs(pod: dict[str, Any], injection: Injection) -> None:
    before = hold(pod, injection)
    after = copy.deepcopy(before)
    after["metadata"]["labels"] = {"a": "b"}
    assert validate(review(after, operation="UPDATE", oldObject=before), injection)["response"]["allowed"]
    after["spec"]["initContainers"][1]["image"] = "evil:1"
    response = validate(review(after, operation="UPDATE", oldObject=before), injection)["response"]
    assert (response["allowed"], "image" in response["status"]["message"]) == (False, True)
    # Without the pod as it was, it is judged as a new one.
    assert not validate(review(after, operation="UPDATE"), injection)["response"]["allowed"]


def test_a_pod_that_is_held_already_needs_no_patch(pod: dict[str, Any], injection: Injection) -> None:
    held = review(hold(pod, injection))
    assert mutate(held, injection)["response"] == {"uid": "u-1", "allowed": True}
    assert validate(held, injection)["response"] == {"uid": "u-1", "allowed": True}


def test_validation_has_the_last_word(pod: dict[str, Any], injection: Injection) -> None:
    response = validate(review(pod), injection)["response"]
    assert response["allowed"] is False
    assert response["status"]["code"] == 403
    assert "would not hold this pod" in response["status"]["message"]


@pytest.mark.parametrize("answered", [mutate, validate])
def test_a_pod_that_cannot_be_held_is_refused(answered: Any, pod: dict[str, Any], injection: Injection) -> None:
    pod["spec"]["hostNetwork"] = True
    response = answered(review(pod), injection)["response"]
    assert response["allowed"] is False
    assert "hostNetwork" in response["status"]["message"]


@pytest.mark.parametrize("answered", [mutate, validate])
def test_a_pod_that_may_opt_out_is_left_alone(answered: Any, pod: dict[str, Any], injection: Injection) -> None:
    pod["metadata"]["annotations"] = {"mcp-interlock/inject": "disabled"}
    free = injection.model_copy(update={"opt_out": True})
    assert answered(review(pod), free)["response"] == {"uid": "u-1", "allowed": True}


@pytest.mark.parametrize("answered", [mutate, validate])
@pytest.mark.parametrize(
    "request_part",
    [
        {"object": None},
        {"object": {}},
        {"object": {"spec": {}}},
        {"object": {"spec": {"containers": {}}}},
        {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}},
    ],
)
def test_what_is_no_pod_is_refused(
    answered: Any, request_part: dict[str, Any], pod: dict[str, Any], injection: Injection
) -> None:
    assert answered(review(pod, **request_part), injection)["response"]["allowed"] is False


@pytest.mark.parametrize("answered", [mutate, validate])
@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"request": {}},
        {"request": {"uid": 1}},
        {"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {"uid": "u"}},
        {"apiVersion": "admission.k8s.io/v1", "kind": "Pod", "request": {"uid": "u"}},
    ],
)
def test_what_is_no_review_raises(answered: Any, body: Any, injection: Injection) -> None:
    with pytest.raises(ReviewError):
        answered(body, injection)
