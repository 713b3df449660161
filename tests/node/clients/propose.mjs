// Proposes a rule to the proxy itself, with either SDK: gives the tools that it lists, and the answer.
import { info } from './common.mjs';

const opened = async (sdk, url) => {
  if (sdk === 'v1') {
    const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
    const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
    const client = new Client(info);
    await client.connect(new StreamableHTTPClientTransport(new URL(url)));
    return client;
  }
  const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
  const client = new Client(info, { versionNegotiation: { mode: 'auto' } });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return client;
};

export const run = async ({ url, sdk, arguments: args }) => {
  try {
    const client = await opened(sdk, url);
    const { tools } = await client.listTools();
    const result = await client.callTool({ name: 'policy.propose', arguments: args });
    await client.close();
    return { tools: tools.map((tool) => tool.name), result };
  } catch (error) {
    return { error: String(error) };
  }
};
