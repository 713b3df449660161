// Calls transfer_funds once and gives what came of it; SDK 2.x also shows the user a page, where it is asked to.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { Client as Client1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as Transport1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { info } from './common.mjs';

const arguments_ = { amount: 4, to: 'typescript' };

const call = async (client, transport, report, timeout) => {
  try {
    await client.connect(transport);
    const patient = { timeout, resetTimeoutOnProgress: true, onprogress: ({ message }) => report.progress.push(message) };
    const options = timeout ? patient : undefined;
    const params = { name: 'transfer_funds', arguments: arguments_ };
    // SDK 1.x takes a schema before the options.
    const result = await (client instanceof Client1 ? client.callTool(params, undefined, options) : client.callTool(params, options));
    return { ...report, isError: result.isError ?? false, moved: result.structuredContent ?? null, meta: result._meta ?? null };
  } catch (error) {
    return { ...report, error: `${error.name}: ${error.message}` };
  } finally {
    await client.close();
  }
};

export const run = async ({ url, legacy, timeout }) => {
  const report = { pages: [], progress: [] };
  if (legacy) return call(new Client1(info), new Transport1(new URL(url)), report, timeout);
  const client = new Client(info, { versionNegotiation: { mode: 'auto' }, capabilities: { elicitation: { url: {} } } });
  client.setRequestHandler('elicitation/create', async (request) => {
    report.pages.push(request.params.url);
    return { action: 'accept' };
  });
  return call(client, new StreamableHTTPClientTransport(new URL(url)), report, timeout);
};
