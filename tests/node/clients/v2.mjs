// SDK 2.x over streamable HTTP: 2026-07-28 where the server has it; --legacy never asks for it.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { info, options, run } from './common.mjs';

const versionNegotiation = { mode: options.legacy ? 'legacy' : 'auto' };
const transport = new StreamableHTTPClientTransport(new URL(options.url));
await run(new Client(info, { versionNegotiation }), transport, 2);
