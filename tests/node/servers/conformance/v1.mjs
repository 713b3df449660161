// The conformance fixtures on SDK 1.x, with sessions and resumable streams.
import { randomUUID } from 'node:crypto';
import { localhostHostValidation, localhostOriginValidation } from '@modelcontextprotocol/node';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import * as types from '@modelcontextprotocol/sdk/types.js';
import { EventStore, info, refuse, serve } from '../common.mjs';
import * as fixtures from './fixtures.mjs';

const tools = { ...fixtures.tools, ...fixtures.legacyTools };
const capabilities = {
  tools: {},
  resources: { subscribe: true },
  prompts: {},
  completions: {},
  logging: {},
};

const channel = (extra) => ({
  log: (data) =>
    extra.sendNotification({ method: 'notifications/message', params: { level: 'info', data } }),
  progress: async (progress, total) => {
    const progressToken = extra._meta?.progressToken;
    if (progressToken === undefined) return;
    await extra.sendNotification({ method: 'notifications/progress', params: { progressToken, progress, total } });
  },
  sample: (params) =>
    extra.sendRequest({ method: 'sampling/createMessage', params }, types.CreateMessageResultSchema),
  elicit: (params) => extra.sendRequest({ method: 'elicitation/create', params }, types.ElicitResultSchema),
  closeStream: () => extra.closeSSEStream?.(),
});

const find = (table, name) => {
  if (!Object.hasOwn(table, name)) {
    throw new types.McpError(types.ErrorCode.InvalidParams, `${name} is not offered here`);
  }
  return table[name];
};

const read = ({ params: { uri } }) => {
  const found = fixtures.readResource(uri);
  if (found === undefined) throw new types.McpError(types.ErrorCode.InvalidParams, 'Resource not found', { uri });
  return found;
};

const listed = (table) => Object.entries(table).map(([name, rest]) => ({ name, description: name, ...rest }));

const newServer = () => {
  const server = new Server(info, { capabilities });
  const on = (schema, handler) => server.setRequestHandler(schema, handler);
  on(types.ListToolsRequestSchema, () => ({
    tools: listed(tools).map(({ run, ...tool }) => tool),
  }));
  on(types.CallToolRequestSchema, ({ params }, extra) =>
    find(tools, params.name).run(params.arguments ?? {}, channel(extra)),
  );
  on(types.ListResourcesRequestSchema, () => ({ resources: fixtures.resources }));
  on(types.ListResourceTemplatesRequestSchema, () => ({ resourceTemplates: fixtures.resourceTemplates }));
  on(types.ReadResourceRequestSchema, read);
  on(types.SubscribeRequestSchema, () => ({}));
  on(types.UnsubscribeRequestSchema, () => ({}));
  on(types.ListPromptsRequestSchema, () => ({
    prompts: listed(fixtures.prompts).map(({ get, ...prompt }) => prompt),
  }));
  on(types.GetPromptRequestSchema, ({ params }) =>
    find(fixtures.prompts, params.name).get(params.arguments ?? {}),
  );
  on(types.CompleteRequestSchema, () => fixtures.completion);
  return server;
};

const sessions = new Map();

const open = async () => {
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    eventStore: new EventStore(),
    retryInterval: 100,
    onsessioninitialized: (id) => sessions.set(id, transport),
    onsessionclosed: (id) => sessions.delete(id),
  });
  await newServer().connect(transport);
  return transport;
};

const handle = async (req, res) => {
  const id = req.headers['mcp-session-id'];
  const transport = id === undefined ? await open() : sessions.get(id);
  if (transport === undefined) refuse(res, 404, 'Session not found');
  else await transport.handleRequest(req, res);
};

const validHost = localhostHostValidation();
const validOrigin = localhostOriginValidation();

serve((req, res) => {
  if (!validHost(req, res) || !validOrigin(req, res)) return;
  handle(req, res).catch((error) => refuse(res, 500, String(error)));
});
