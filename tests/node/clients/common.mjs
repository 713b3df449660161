// The one script every test client follows; it gives what each step gave as one object.
import { performance } from 'node:perf_hooks';

export const info = { name: 'interlock-test-client', version: '1.0.0' };

// A request that hangs is reported as such long before a test's own deadline.
const timeout = 60_000;

const describeError = (error) => ({
  name: error.name,
  message: error.message,
  code: error.code ?? null,
  data: error.data ?? null,
  cause: error.cause ? String(error.cause) : null,
});

const timed = async (work) => {
  const start = performance.now();
  const elapsed = () => Math.round((performance.now() - start) * 10) / 10;
  try {
    return { ok: true, ...(await work()), ms: elapsed() };
  } catch (error) {
    return { ok: false, error: describeError(error), ms: elapsed() };
  }
};

const call = (client, name, args) =>
  timed(async () => {
    const result = await client.callTool({ name, arguments: args }, { timeout });
    return {
      isError: result.isError ?? false,
      text: result.content.map((part) => part.text ?? '').join(''),
      meta: result._meta ?? null,
    };
  });

// SDK 1.x takes a result schema second, SDK 2.x the options.
const adapt = (client, major) => ({
  callTool: (params, opts) =>
    major === 1 ? client.callTool(params, undefined, opts) : client.callTool(params, opts),
});

const steps = async (client, transport, major, report) => {
  const caller = adapt(client, major);
  report.session = transport.sessionId ?? null;
  report.protocolVersion = client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion ?? null;
  report.list = await timed(async () => {
    const { tools } = await client.listTools(undefined, { timeout });
    return { tools: tools.map((tool) => tool.name) };
  });
  report.echo = await call(caller, 'echo', { text: 'first' });
  report.danger = await call(caller, 'danger', { note: 'should not happen' });
  report.echoAgain = await call(caller, 'echo', { text: 'second' });
  report.sessionAfter = transport.sessionId ?? null;
};

/** Connect, list, call `echo`, `danger`, `echo` again on one session; give the report. */
export const follow = async (client, transport, major) => {
  const report = { transportErrors: [] };
  // Closing aborts the open stream, which is an "error" of no interest: `closed` ends the watch.
  let closed = false;
  client.onerror = (error) => closed || report.transportErrors.push(String(error));
  report.connect = await timed(() => client.connect(transport, { timeout }).then(() => ({})));
  if (report.connect.ok) {
    await steps(client, transport, major, report);
    closed = true;
    report.close = await timed(() => client.close().then(() => ({})));
  }
  return report;
};
