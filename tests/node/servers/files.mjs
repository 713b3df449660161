// The TypeScript SDK's server over stdio, for measuring: `echo` touches nothing, `read_many` reads files of a folder.
import { readFile, readdir } from "node:fs/promises";
import { join } from "node:path";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { z } from "zod";

const server = new McpServer({ name: "files", version: "1" });
const said = (value) => ({ content: [{ type: "text", text: String(value) }] });

server.registerTool("echo", { inputSchema: { text: z.string() } }, async ({ text }) => said(text));
server.registerTool(
  "read_many",
  { inputSchema: { folder: z.string(), count: z.number() } },
  async ({ folder, count }) => {
    let size = 0;
    for (const name of (await readdir(folder)).sort().slice(0, count)) {
      size += (await readFile(join(folder, name))).length;
    }
    return said(size);
  },
);
await server.connect(new StdioServerTransport());
