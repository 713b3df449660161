// Sessions and stateless serving with SDK 1.x, whoever reads the body.
import { randomUUID } from 'node:crypto';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { EventStore, info, options, refuse, registerTools } from './common.mjs';

const channel = (extra) => ({
  token: extra._meta?.progressToken,
  notify: (notification) => extra.sendNotification(notification),
});

export const newServer = () => registerTools(new McpServer(info), channel);

const sessions = new Map();

const open = async () => {
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: options.stateless ? undefined : randomUUID,
    enableJsonResponse: options.json,
    eventStore: options.resumable ? new EventStore() : undefined,
    onsessioninitialized: (id) => sessions.set(id, transport),
    onsessionclosed: (id) => sessions.delete(id),
  });
  await newServer().connect(transport);
  return transport;
};

const find = async (req) => {
  const id = req.headers['mcp-session-id'];
  return options.stateless || id === undefined ? open() : sessions.get(id);
};

/** Serve one request of the MCP endpoint; `body` is set where a framework has parsed it. */
export const handle = async (req, res, body) => {
  if (options.stateless && req.method !== 'POST') {
    refuse(res, 405, 'Method not allowed');
    return;
  }
  const transport = await find(req);
  if (transport === undefined) {
    refuse(res, 404, 'Session not found');
    return;
  }
  await transport.handleRequest(req, res, body);
};
