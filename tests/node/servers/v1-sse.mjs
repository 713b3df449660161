// SDK 1.x over HTTP+SSE (2024-11-05): GET /sse is the stream, POST /messages the way in.
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { refuse, serve } from './common.mjs';
import { newServer } from './v1-common.mjs';

const streams = new Map();

const open = async (res) => {
  const transport = new SSEServerTransport('/messages', res);
  streams.set(transport.sessionId, transport);
  res.on('close', () => streams.delete(transport.sessionId));
  await newServer().connect(transport);
};

const post = async (req, res, id) => {
  const transport = streams.get(id);
  if (transport === undefined) refuse(res, 404, 'Session not found');
  else await transport.handlePostMessage(req, res);
};

const route = async (req, res) => {
  const url = new URL(req.url, 'http://localhost');
  if (req.method === 'GET' && url.pathname === '/sse') await open(res);
  else if (req.method === 'POST' && url.pathname === '/messages') {
    await post(req, res, url.searchParams.get('sessionId'));
  } else refuse(res, 404, 'Not found');
};

serve((req, res) => {
  route(req, res).catch((error) => refuse(res, 500, String(error)));
});
