// Tasks of 2025-11-25 with SDK 1.x, over streamable HTTP or stdio, against server-everything's research tool.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CallToolResultSchema, ElicitRequestSchema, TaskStatusNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { info } from './common.mjs';

const transportTo = ({ url, command }) =>
  command
    ? new StdioClientTransport({ command: command[0], args: command.slice(1), env: process.env, stderr: 'ignore' })
    : new StreamableHTTPClientTransport(new URL(url));

const tool = (topic, ambiguous) => ({ name: 'simulate-research-query', arguments: { topic, ambiguous } });

const follow = async (tasks, topic) => {
  const seen = [];
  for await (const message of tasks.callToolStream(tool(topic, true), CallToolResultSchema, { task: { ttl: 60_000 } })) {
    seen.push(message.type === 'error' ? { type: 'error', message: message.error.message } : message);
  }
  return seen;
};

export const run = async (options) => {
  const asked = [];
  const told = [];
  const client = new Client(info, { capabilities: { elicitation: { form: {} } } });
  client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
    asked.push(params.message);
    return { action: 'accept', content: { interpretation: 'the clearest' } };
  });
  client.setNotificationHandler(TaskStatusNotificationSchema, ({ params }) => void told.push(params));
  await client.connect(transportTo(options));
  const { tasks } = client.experimental;
  const seen = await follow(tasks, options.topic);
  const { taskId } = seen.find(({ type }) => type === 'taskCreated').task;
  const report = {
    asked,
    told,
    seen,
    got: await tasks.getTask(taskId),
    result: await tasks.getTaskResult(taskId, CallToolResultSchema),
    listed: (await tasks.listTasks()).tasks.map((task) => task.taskId),
    taskId,
  };
  const another = tasks.callToolStream(tool(options.topic, false), CallToolResultSchema, { task: { ttl: 60_000 } });
  const { value } = await another.next();
  report.cancelled = (await tasks.cancelTask(value.task.taskId)).status;
  await client.close();
  return report;
};
