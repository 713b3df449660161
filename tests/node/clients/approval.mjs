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

// As a task, because the list of tools says that it may be one: this SDK asks for it by itself then, and polls.
const callAsTask = async (client, transport, report) => {
  await client.connect(transport);
  await client.listTools();
  for await (const message of client.experimental.tasks.callToolStream({ name: 'transfer_funds', arguments: arguments_ })) {
    report.seen.push(message.type === 'taskStatus' ? message.task.status : message.type);
    if (message.type === 'result') report.moved = message.result.structuredContent;
    if (message.type === 'error') report.error = message.error.message;
  }
  await client.close();
  return report;
};

export const run = async ({ url, legacy, timeout, task }) => {
  const report = { pages: [], progress: [], seen: [] };
  if (task) return callAsTask(new Client1(info), new Transport1(new URL(url)), report);
  if (legacy) return call(new Client1(info), new Transport1(new URL(url)), report, timeout);
  const client = new Client(info, { versionNegotiation: { mode: 'auto' }, capabilities: { elicitation: { url: {} } } });
  client.setRequestHandler('elicitation/create', async (request) => {
    report.pages.push(request.params.url);
    return { action: 'accept' };
  });
  return call(client, new StreamableHTTPClientTransport(new URL(url)), report, timeout);
};
