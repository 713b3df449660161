// SDK 1.x over streamable HTTP.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { follow, info } from './common.mjs';

export const run = ({ url }) => follow(new Client(info), new StreamableHTTPClientTransport(new URL(url)), 1);
