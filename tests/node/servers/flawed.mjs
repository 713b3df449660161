// A stdio server with flaws of JavaScript; with `--careful`, the same without them. No library.
import { createInterface } from "node:readline";

const careful = process.argv.includes("--careful");
const text = (name) => ({ type: "object", properties: { [name]: { type: "string" } }, required: [name] });

function merge(target, source) {
  for (const key of Object.keys(source)) {
    if (careful && ["__proto__", "constructor", "prototype"].includes(key)) continue;
    if (source[key] && typeof source[key] === "object") merge((target[key] ??= {}), source[key]);
    else target[key] = source[key];
  }
  return target;
}

const tools = {
  load_session: {
    description: "Restores a session from a token in base64",
    inputSchema: text("token"),
    run: ({ token }) => JSON.stringify({ role: merge({}, JSON.parse(Buffer.from(token, "base64"))).role ?? "user" }),
  },
  render: {
    description: "Renders a template, in which {{ name }} is filled in",
    inputSchema: text("template"),
    run: ({ template }) =>
      template.replace(/\{\{(.+?)\}\}/g, (_, inner) =>
        careful ? (inner.trim() === "name" ? "alex" : "") : String(new Function("name", `return ${inner}`)("alex")),
      ),
  },
};

function answer(method, params) {
  const serverInfo = { name: "flawed", version: "1" };
  if (method === "initialize")
    return { result: { protocolVersion: "2025-11-25", capabilities: { tools: {} }, serverInfo } };
  if (method === "tools/list")
    return { result: { tools: Object.entries(tools).map(([name, { run, ...said }]) => ({ name, ...said })) } };
  if (method !== "tools/call") return { error: { code: -32601, message: `no method ${method}` } };
  try {
    return { result: { content: [{ type: "text", text: tools[params.name].run(params.arguments) }] } };
  } catch (error) {
    return { result: { content: [{ type: "text", text: String(error) }], isError: true } };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id !== undefined) process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id, ...answer(method, params) })}\n`);
}
