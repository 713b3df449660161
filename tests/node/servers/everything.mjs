// @modelcontextprotocol/server-everything under the test servers' contract: on loopback
// only, on a port of the system's choosing, which it says on stdout. Nothing else is changed.
// --transport streamableHttp|sse.
import http from 'node:http';
import { endWithStdin, options } from './common.mjs';

const { listen } = http.Server.prototype;
http.Server.prototype.listen = function listenOnLoopback(_port, ready) {
  return listen.call(this, Number(options.port), '127.0.0.1', (...args) => {
    process.stdout.write(`${JSON.stringify({ port: this.address().port })}\n`);
    ready?.(...args);
  });
};
// The server's own chatter would come before the port.
console.log = console.error;
endWithStdin();

const { transport } = options;
if (transport !== 'streamableHttp' && transport !== 'sse') {
  throw new Error(`--transport is ${transport}: write streamableHttp or sse`);
}
const entry = import.meta.resolve('@modelcontextprotocol/server-everything/package.json');
await import(new URL(`dist/transports/${transport}.js`, entry));
