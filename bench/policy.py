"""CPU time a decision, by the benchmark's policies, those shipped, and thousands of rules: `python -m bench.policy`."""

import statistics
import time
from pathlib import Path

from bench import figures, payloads, policies
from bench.figures import Figure
from proxy.core.model import Call
from proxy.policy.decide import CompiledPolicy
from proxy.policy.load import load_policy
from proxy.policy.rules import PolicyFile

SHIPPED = Path(__file__).parent.parent / "policies"
ROUNDS = 7


def make(tool_of, count=1000):
    rules = [
        {
            "id": f"r{i}",
            "action": "deny",
            "tools": [tool_of(i)],
            "when": {"all": [{"arg": "path", "path_under": [f"/srv/{i}", f"/opt/{i}"]}]},
        }
        for i in range(count)
    ]
    content = PolicyFile.model_validate({"version": 1, "rules": rules})
    policy = CompiledPolicy(content.rules, default="allow")
    policy.prepare()  # as `load_policy` does
    return policy


def per_decision(policy, calls, repeat):
    for call in calls:
        policy.decide(call)
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(repeat):
            for call in calls:
                policy.decide(call)
        times.append((time.process_time() - start) / repeat / len(calls) * 1e6)
    return statistics.median(times)


def calls_to(tools, path):
    return [
        Call("tools/call", "files", "agent", tool, {"path": path, "encoding": "utf-8", "limit": 10}) for tool in tools
    ]


def measure(_quick):
    spread = make(lambda i: f"tool_{i % 200}")
    single = make(lambda _: "tool")
    tools = [f"tool_{i}" for i in range(200)]
    plain, crooked = "/home/agent/project/src/main.py", "/home/agent/..%2f..%2fsrv2/caf\u00e9/./x"
    many, many_tools = make(lambda i: f"tool_{i % 2000}", 10_000), [f"tool_{i}" for i in range(2000)]
    hundred = CompiledPolicy(PolicyFile.model_validate(policies.policy(100, redact=True)).rules, default="allow")
    search = [Call("tools/call", "files", "agent", payloads.TOOL, payloads.ARGUMENTS)]
    shipped = load_policy(SHIPPED)
    rows = [
        ("100 rules, 20 on the tool, path and pattern", hundred, search, 200, 25),
        ("the shipped policies, a search", shipped, search, 100, None),
        ("the shipped policies, relative path", shipped, calls_to(["read_file"], "src/main.py"), 100, None),
        ("1000 rules over 200 tools, plain path", spread, calls_to(tools, plain), 10, 10),
        ("1000 rules over 200 tools, encoded path", spread, calls_to(tools, crooked), 3, None),
        ("10000 rules over 2000 tools, plain path", many, calls_to(many_tools, plain), 1, 15),
        ("1000 rules on one tool, plain path", single, calls_to(["tool"], plain), 50, 300),
        ("1000 rules on one tool, encoded path", single, calls_to(["tool"], crooked), 50, None),
        ("1000 rules on one tool, last one denies", single, calls_to(["tool"], "/srv/999/x"), 50, 300),
    ]
    for name, policy, calls, repeat, limit in rows:
        yield Figure(name, per_decision(policy, calls, repeat), "µs a decision", at_most=limit)


if __name__ == "__main__":
    figures.main(measure, __doc__)
