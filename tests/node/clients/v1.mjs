// SDK 1.x over streamable HTTP.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { info, options, run } from './common.mjs';

await run(new Client(info), new StreamableHTTPClientTransport(new URL(options.url)), 1);
