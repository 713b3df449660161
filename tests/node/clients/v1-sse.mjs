// SDK 1.x over HTTP+SSE (2024-11-05).
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { follow, info } from './common.mjs';

export const run = ({ url }) => follow(new Client(info), new SSEClientTransport(new URL(url)), 1);
