// The conformance fixtures on SDK 2.x: 2026-07-28, stateless.
import { localhostHostValidation, localhostOriginValidation, toNodeHandler } from '@modelcontextprotocol/node';
import {
  createMcpHandler,
  fromJsonSchema,
  McpServer,
  ProtocolError,
  ProtocolErrorCode,
} from '@modelcontextprotocol/server';
import { info, serve } from '../common.mjs';
import * as fixtures from './fixtures.mjs';
import { inputPrompt, inputTools, states } from './modern.mjs';

const changing = { listChanged: true };
const capabilities = { tools: changing, resources: changing, prompts: changing, completions: {}, logging: {} };

const channel = ({ mcpReq }) => ({
  log: (data) => mcpReq.log('info', data),
  progress: async (progress, total) => {
    const progressToken = mcpReq._meta?.progressToken;
    if (progressToken === undefined) return;
    await mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total } });
  },
  closeStream: () => {},
});

const invalid = (message, data) => new ProtocolError(ProtocolErrorCode.InvalidParams, message, data);

const { answer, text } = fixtures;
const noArguments = { type: 'object', properties: {} };

const tools = {
  ...Object.fromEntries(
    Object.entries(fixtures.tools).map(([name, { inputSchema, run }]) => [
      name,
      { inputSchema, run: (args, ctx) => run(args, channel(ctx)) },
    ]),
  ),
  ...Object.fromEntries(
    Object.entries(inputTools).map(([name, run]) => [
      name,
      { inputSchema: noArguments, run: (_args, ctx) => run(ctx) },
    ]),
  ),
  test_logging_tool: {
    inputSchema: noArguments,
    run: async (_args, ctx) => {
      await channel(ctx).log('only where the request asked for it');
      return answer(text('done'));
    },
  },
  test_headers: {
    inputSchema: fixtures.object({ region: { type: 'string', 'x-mcp-header': 'Region' } }),
    run: ({ region }) => answer(text(region)),
  },
  test_trigger_tool_change: {
    inputSchema: noArguments,
    run: () => {
      handler.notify.toolsChanged();
      return answer(text('told'));
    },
  },
  test_trigger_prompt_change: {
    inputSchema: noArguments,
    run: () => {
      handler.notify.promptsChanged();
      return answer(text('told'));
    },
  },
};

const prompts = [
  ...Object.entries(fixtures.prompts).map(([name, prompt]) => ({
    name,
    description: name,
    arguments: prompt.arguments,
  })),
  { name: inputPrompt.name, description: inputPrompt.name, arguments: [] },
];

const getPrompt = ({ params }, ctx) => {
  if (params.name === inputPrompt.name) return inputPrompt.get(ctx);
  if (!Object.hasOwn(fixtures.prompts, params.name)) throw invalid(`${params.name} is not offered here`);
  return fixtures.prompts[params.name].get(params.arguments ?? {});
};

const read = ({ params: { uri } }) => {
  const found = fixtures.readResource(uri);
  if (found === undefined) throw invalid('Resource not found', { uri });
  return found;
};

const newServer = () => {
  const mcp = new McpServer(info, { capabilities, requestState: { verify: states.verify } });
  for (const [name, { inputSchema, run }] of Object.entries(tools)) {
    mcp.registerTool(name, { description: name, inputSchema: fromJsonSchema(inputSchema) }, run);
  }
  const on = (method, handle) => mcp.server.setRequestHandler(method, handle);
  on('resources/list', () => ({ resources: fixtures.resources }));
  on('resources/templates/list', () => ({ resourceTemplates: fixtures.resourceTemplates }));
  on('resources/read', read);
  on('prompts/list', () => ({ prompts }));
  on('prompts/get', getPrompt);
  on('completion/complete', () => fixtures.completion);
  return mcp;
};

const handler = createMcpHandler(newServer, { legacy: 'reject' });
const handle = toNodeHandler(handler);
const validHost = localhostHostValidation();
const validOrigin = localhostOriginValidation();

serve((req, res) => {
  if (validHost(req, res) && validOrigin(req, res)) handle(req, res);
});
