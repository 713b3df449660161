// SDK 2.x on node:http: 2026-07-28, and 2025-era clients with sessions or (--stateless) without.
import { randomUUID } from 'node:crypto';
import { toNodeHandler } from '@modelcontextprotocol/node';
import {
  createMcpHandler,
  isLegacyRequest,
  McpServer,
  WebStandardStreamableHTTPServerTransport,
} from '@modelcontextprotocol/server';
import { EventStore, info, options, registerTools, serve } from './common.mjs';

const channel = ({ mcpReq }) => ({
  token: mcpReq._meta?.progressToken,
  notify: (notification) => mcpReq.notify(notification),
});

const newServer = () => registerTools(new McpServer(info), channel);

const sessions = new Map();

const open = async () => {
  const transport = new WebStandardStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    enableJsonResponse: options.json,
    eventStore: options.resumable ? new EventStore() : undefined,
    onsessioninitialized: (id) => void sessions.set(id, transport),
    onsessionclosed: (id) => void sessions.delete(id),
  });
  await newServer().connect(transport);
  return transport;
};

const legacy = async (request) => {
  const id = request.headers.get('mcp-session-id');
  const transport = id === null ? await open() : sessions.get(id);
  return transport?.handleRequest(request) ?? new Response('Session not found', { status: 404 });
};

const modern = createMcpHandler(newServer, {
  legacy: options.stateless ? 'stateless' : 'reject',
  responseMode: options.json ? 'json' : 'sse',
});

const fetch = async (request) => {
  if (new URL(request.url).pathname !== '/mcp') return new Response('Not found', { status: 404 });
  if (!options.stateless && (await isLegacyRequest(request))) return legacy(request);
  return modern.fetch(request);
};

serve(toNodeHandler({ fetch }));
