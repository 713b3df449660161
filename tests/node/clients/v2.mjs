// SDK 2.x over streamable HTTP: 2026-07-28 where the server has it; `legacy` never asks for it.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { follow, info } from './common.mjs';

export const run = ({ url, legacy }) => {
  const versionNegotiation = { mode: legacy ? 'legacy' : 'auto' };
  return follow(new Client(info, { versionNegotiation }), new StreamableHTTPClientTransport(new URL(url)), 2);
};
