"""What some parser reads as a call is found, whichever parser it is; what none reads is not."""

from __future__ import annotations

import contextlib
import time

import pytest

from proxy.wire.lenient import MAX_READ, find_call
from proxy.wire.lenient_shape import TooLongError, method_of, request_id

CALL = '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"danger","arguments":{}}}'
WORDS = '{jsonrpc:"2.0",id:7,method:"tools/call",params:{}}'
# Each was seen to be read as a call by the parser that it names.
READ: dict[str, str] = {
    "PHP, a numbered object": f'{{"0":{CALL}}}',
    "PHP, numbers in numbers": f'{{"0":{{"0":{CALL},"1":1}}}}',
    "Ruby, unknown escapes": CALL.replace("jsonrpc", "j\\sonrpc")
    .replace("call", "c\\all")
    .replace("method", "meth\\od"),
    "kotlinx, no quotes": "{jsonrpc:2.0,id:7,method:tools/call,params:{name:danger}}",
    "serde, a struct": '["2.0",7,"tools/call",{"name":"danger"}]',
    "serde, an enum": CALL.replace('"tools/call"', '{"tools/call":null}'),
    "Node, an array": CALL.replace('"tools/call"', '["tools/call"]'),
    "fastjson": CALL.replace('"method"', '"me-th_od"'),
    "cJSON": CALL.replace('"method"', '"method\\u0000x"'),
    "Go": CALL.replace('"method"', '"METHOD"'),
    "Gson, a guard": f")]}}'\n{CALL}",
    "Gson, lines of comments": f"#x\n# y\n{CALL}",
    "Gson, other separators": "{method=>'tools/call';id=7;params={}}",
    "Gson, quotes in words": "{it's=>1,method:'tools/call'}",
    "JSON5": "{/* x */method:'\\x74ools/call',\n// y\nparams:{},}",
    "JSON5, a line continued": '{"method":"tools/\\\ncall",id:7}',
    "JavaScript, octal": '{"method":"\\164ools/call",}',
    "HJSON": "{\n  method: tools/call\n  id: 7\n  params: {name: danger}\n}",
    "HJSON without brackets": "# x\nmethod: tools/call\nparams: { // y '\n name: danger\n}",
    "HJSON, quoted keys without brackets": '"id": 7\n"method": "tools/call"\n',
    "HJSON, three quotes": "{x:'''a'b''', method: 'tools/call'}",
    "YAML": "jsonrpc: '2.0'\nid: 7\nmethod: tools/call # x\nparams:\n  name: danger\n",
    "YAML, a list": "- method: tools/call\n  params: {name: danger}\n",
    "YAML, keys on lines": "? method\n: tools/call\n? params\n: {name: danger}\n",
    "YAML, blocks": "%YAML 1.2\n---\nmethod: >-\n  tools/call\nparams: {}\n...\n",
    "YAML, tags and anchors": "method: !!str &a tools/call\nid: 7\n",
    "YAML, an alias": "{x: &m tools/call, method: *m, params: {}}",
    "YAML, brackets over lines": " x: {\nfoo bar\n}\n id: 7\n method: tools/call\n",
    "YAML, a comment for a value": '"x": #\n"method": "tools/call"\n"id": 7\n',
    "YAML, an odd key": '? "x"/*\n: 1\nid: 7\nmethod: tools/call\n',
    "YAML, a tag before all": "!!map {method: tools/call, id: 7, params: {}}",
    "YAML, an anchor before all": "&r\nmethod: tools/call\nid: 7\n",
    "YAML, an anchor at a key": "? &k method\n: tools/call\nid: 7\n",
    "YAML, an item in brackets": "# x\n- {method: tools/call,\n id: 7}\n",
    "YAML, merged": "a: &b {method: tools/call}\n<<: *b\nid: 7\nparams: {name: danger}\n",
    "YAML, merged in brackets": "{a: &b {method: tools/call}, <<: *b, id: 7, params: {}}",
    "YAML, all merged": "<<: {method: tools/call, params: {}}\n",
    "YAML, an alias for a key": "a: &k method\n*k : tools/call\nid: 7\nparams: {name: danger}\n",
    "YAML, single quotes end at a backslash": "{a: '\\', method: 'tools/call', b: '\\'}",
    "a word that begins with a quote": '{x:\'a,"id":7,method:"tools/call",params:{},y:\'}',
    "a word that begins like a comment": "{x:#,method:tools/call,params:{}\n}",
    "a comment in the middle of a word": "{x: 1//,{\n,method:'tools/call'}",
    "a string in a string": '"{\\"method\\":\\"tools/call\\"}"',
    "values before it": f"1 true 'x' {WORDS}",
    "no end": CALL[:-1],
    "brackets too many": f"{CALL}}}}}",
}


@pytest.mark.parametrize("text", READ.values(), ids=READ)
def test_what_some_parser_reads_as_a_call_is_found(text: str) -> None:
    assert find_call(text) is not None


# No parser finds a message at their start, though they are full of words of MCP's.
OTHER: dict[str, str] = {
    "Markdown, a link first": f"[MCP](https://example.com) \n```json\n{CALL}\n```\n",
    "Markdown, a title first": f"# MCP: tools\n\n- **Status**: done\n\nSend\n\n{WORDS}\n",
    "TypeScript": f'// x: y\nimport {{ a }} from "tools/call";\nconst x = {WORDS};\n',
    "a bundle": f"/*! x */(function(){{var a={WORDS}}})()",
    "a bundle without a name": f"!function(e){{e.exports={WORDS}}}()",
    "Go": f"// Package x: y\npackage x\n\nvar call = `{CALL}`\n",
    "Python": f'"""Doc "tools/call"."""\n\nCALL = {CALL}\n',
    "CSS": '[data-method="tools/call"]{content:"jsonrpc"}',
    "JSONC": f'{{ // x\n "a": {CALL}, }}',
    "a block of JavaScript": f"{{ let call = {WORDS}; }}",
    "YAML with a call inside": "name: x\nsteps:\n  - method: tools/call\n    params: {name: danger}\n",
    "YAML with a request inside": "request:\n  method: tools/call\n  params:\n    name: danger\n",
    "a header": "Method: tools/call of jsonrpc\n\nSome prose.\n",
    "names of methods": '["tools/list", "tools/call", "jsonrpc"',
    "INI": "[tools/call]\njsonrpc=2.0\n",
}  # fmt: skip


@pytest.mark.parametrize("text", OTHER.values(), ids=OTHER)
def test_what_no_parser_reads_from_its_start_is_not_found(text: str) -> None:
    assert find_call(text) is None


def test_a_whole_line_has_nothing_behind_the_call() -> None:
    assert find_call(f"{WORDS} // x", whole=True) is not None
    assert find_call(f"{WORDS},", whole=True) is None
    assert find_call(WORDS[:-1], whole=True) is None


def test_the_id_and_the_method_of_what_was_found_are_known() -> None:
    found = find_call(WORDS)
    assert (request_id(found), method_of(found)) == (7, "tools/call")
    assert request_id(find_call(WORDS.replace("7", '"7"'))) == "7"
    assert request_id(find_call(WORDS.replace("7", "x"))) is None


def test_a_text_that_is_too_long_to_be_read_is_not_taken_for_read() -> None:
    with pytest.raises(TooLongError):
        find_call(f"{{x:1,{' ' * MAX_READ}{WORDS[1:]}")


SIZE = 1 << 20


@pytest.mark.parametrize(
    "text",
    [
        "{'#`//\\'" * (SIZE // 8),
        "{" * SIZE,
        "a: {" * (SIZE // 4),
        "a:\n" * (SIZE // 3),
        "? a\n" * (SIZE // 4),
        "/*" * SIZE,
    ],
    ids=["every choice", "brackets", "open brackets", "keys", "explicit keys", "comments"],
)
def test_the_work_is_bounded(text: str) -> None:
    start = time.process_time()
    with contextlib.suppress(TooLongError):
        assert find_call(f"{text} jsonrpc") is None
    assert time.process_time() - start < 4


def test_a_merge_below_the_top_of_yaml_is_no_call() -> None:
    assert find_call("x-a: &a\n  image: jsonrpc\nservices:\n  b:\n    <<: *a\n") is None
