from proxy.model import Call
from proxy.policy.decide import CompiledPolicy
from proxy.policy.rules import PolicyFile


def policy(*rules, default="allow"):
    content = PolicyFile.model_validate({"version": 1, "default": default, "rules": list(rules)})
    return CompiledPolicy(content.rules, default=default, version="v")


def call(arguments=None, tool="tool", server="server", agent="agent", method="tools/call"):
    return Call(method, server, agent, tool, arguments)
