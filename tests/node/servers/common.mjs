// What every test server shares: its arguments, its tools, its log, its life.
import { appendFileSync, fstatSync, readFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { z } from 'zod';

const { values } = parseArgs({
  options: {
    port: { type: 'string', default: '0' },
    log: { type: 'string' },
    stateless: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    resumable: { type: 'boolean', default: false },
    transport: { type: 'string' },
    'tls-cert': { type: 'string' },
    'tls-key': { type: 'string' },
  },
});
if (!values.log) {
  console.error('--log FILE is required: the tests read there what was executed');
  process.exit(2);
}

export const options = values;
export const info = { name: 'interlock-test-server', version: '1.0.0' };

const text = (value) => ({ content: [{ type: 'text', text: value }] });

const report = async (progress, ms) => {
  const steps = 3;
  for (let step = 1; step <= steps; step += 1) {
    await delay(ms / steps);
    await progress(step, steps);
  }
};

// Unknown arguments are kept, so that the log shows all that reached the tool.
const tools = {
  echo: { input: { text: z.string() }, run: (args) => text(args.text) },
  read_file: { input: { path: z.string() }, run: (args) => text(`contents of ${args.path}`) },
  danger: { input: { note: z.string().optional() }, run: () => text('boom') },
  slow: {
    input: { ms: z.number().min(0).max(60_000) },
    run: async (args, progress) => {
      await report(progress, args.ms);
      return text(`waited ${args.ms} ms`);
    },
  },
  structured: {
    input: { n: z.number() },
    output: { n: z.number(), square: z.number() },
    run: ({ n }) => {
      const structuredContent = { n, square: n * n };
      return { ...text(JSON.stringify(structuredContent)), structuredContent };
    },
  },
};

const execute = (name, args, progress) => {
  appendFileSync(options.log, `${JSON.stringify({ tool: name, arguments: args })}\n`);
  return tools[name].run(args, progress);
};

/**
 * Register the test tools on an McpServer of either SDK.
 *
 * `channel(extra)` gives `{token, notify}`: the request's progress token and how
 * this SDK's handlers send a notification that belongs to the request.
 */
export const registerTools = (server, channel) => {
  for (const [name, { input, output }] of Object.entries(tools)) {
    const config = { description: `the test tool ${name}`, inputSchema: z.looseObject(input) };
    if (output) config.outputSchema = z.object(output);
    server.registerTool(name, config, (args, extra) => {
      const { token, notify } = channel(extra);
      const progress = async (done, total) => {
        if (token === undefined) return;
        const params = { progressToken: token, progress: done, total };
        await notify({ method: 'notifications/progress', params });
      };
      return execute(name, args, progress);
    });
  }
  return server;
};

/** Keeps sent events in memory, for resumption by Last-Event-ID. */
export class EventStore {
  #events = [];

  async storeEvent(streamId, message) {
    this.#events.push({ streamId, message });
    return String(this.#events.length);
  }

  async getStreamIdForEventId(eventId) {
    return this.#events[Number(eventId) - 1]?.streamId;
  }

  async replayEventsAfter(lastEventId, { send }) {
    const streamId = await this.getStreamIdForEventId(lastEventId);
    for (let index = Number(lastEventId); index < this.#events.length; index += 1) {
      const event = this.#events[index];
      if (event.streamId === streamId) await send(String(index + 1), event.message);
    }
    return streamId;
  }
}

/** End on SIGTERM, and with stdin where that is somebody's pipe: /dev/null ends at once. */
export const endWithStdin = () => {
  process.on('SIGTERM', () => process.exit(0));
  const stdin = fstatSync(0);
  if (stdin.isFIFO() || stdin.isSocket()) process.stdin.on('end', () => process.exit(0)).resume();
};

const listening = (server, port) =>
  new Promise((resolve) => {
    server.listen(port, '127.0.0.1', () => resolve(server.address().port));
  });

/** Serve `handler` on 127.0.0.1, say the port on stdout, end with stdin or SIGTERM. With TLS, without it as well. */
export const serve = async (handler) => {
  endWithStdin();
  const plain = http.createServer(handler);
  if (!options['tls-cert']) {
    console.log(JSON.stringify({ port: await listening(plain, Number(options.port)) }));
    return;
  }
  const tls = { cert: readFileSync(options['tls-cert']), key: readFileSync(options['tls-key']) };
  const port = await listening(https.createServer(tls, handler), Number(options.port));
  console.log(JSON.stringify({ port, plain_port: await listening(plain, 0) }));
};

/** Answer a request that never reached an MCP transport. */
export const refuse = (res, status, message) => {
  if (res.headersSent) {
    res.destroy();
    return;
  }
  res.writeHead(status, { 'content-type': 'application/json' });
  res.end(JSON.stringify({ jsonrpc: '2.0', id: null, error: { code: -32000, message } }));
};
