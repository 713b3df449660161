// SDK 1.x over HTTP+SSE (2024-11-05).
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { info, options, run } from './common.mjs';

await run(new Client(info), new SSEClientTransport(new URL(options.url)), 1);
