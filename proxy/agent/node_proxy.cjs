// Sends Node's HTTP through the proxy that HTTPS_PROXY names. Loaded by NODE_OPTIONS=--require.
//
// Node before 22.21 ignores NODE_USE_ENV_PROXY without a word, and later versions obey it only for `fetch` and the
// default agents: calls of a client with an agent of its own, or without one, would go around the proxy. This covers
// `http`, `https`, `fetch`, and copies of undici that use the global dispatcher. If it cannot do its work, Node does not
// start: a call that nobody sees is worse.
'use strict';

const proxy = process.env.HTTPS_PROXY || process.env.https_proxy || process.env.HTTP_PROXY || process.env.http_proxy;
if (!proxy) return;

const http = require('node:http');
const https = require('node:https');
const net = require('node:net');
const tls = require('node:tls');

const MAX_HEAD = 65536;
const { hostname, port, username, password } = new URL(proxy);
const address = { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port) || 80 };
const credentials = Buffer.from(`${decodeURIComponent(username)}:${decodeURIComponent(password)}`).toString('base64');
const authorization = username ? `Proxy-Authorization: Basic ${credentials}\r\n` : '';

// Node's own agents and libraries that read HTTPS_PROXY themselves dial the proxy; a tunnel to the proxy through the proxy would be refused.
const isProxy = (host, target) => host === address.host && Number(target) === address.port;

/** Open a tunnel to a host; call `done(error, socket)` once. */
function tunnel(host, target, done) {
  const bare = String(host || 'localhost').replace(/^\[|\]$/g, '');
  if (isProxy(bare, target)) {
    const socket = net.connect(address, () => finish(null));
    const finish = once(socket, (error) => done(error, socket));
    return;
  }
  const name = `${bare.includes(':') ? `[${bare}]` : bare}:${target}`;
  const socket = net.connect(address, () => {
    socket.write(`CONNECT ${name} HTTP/1.1\r\nHost: ${name}\r\n${authorization}\r\n`);
  });
  let head = Buffer.alloc(0);
  const finish = once(socket, (error) => {
    socket.removeListener('readable', read);
    done(error, socket);
  });
  // By `readable`, not `data`: a socket that flowed once would have to be resumed by whoever gets it.
  function read() {
    for (let data = socket.read(); data !== null; data = socket.read()) head = Buffer.concat([head, data]);
    const end = head.indexOf('\r\n\r\n');
    if (end < 0 && head.length < MAX_HEAD) return;
    const status = head.subarray(0, 12).toString('latin1');
    if (end < 0 || !/^HTTP\/1\.[01] 200$/.test(status)) {
      const said = head.subarray(end < 0 ? head.length : end + 4).toString('utf8').trim().slice(0, 500);
      finish(new Error(`the proxy refused a connection to ${name}: ${said || status}`));
      return;
    }
    if (end + 4 < head.length) socket.unshift(head.subarray(end + 4));
    finish(null);
  }
  socket.on('readable', read);
}

/** Return a function that calls `done` once: with its argument, or with what breaks `socket` before. */
function once(socket, done) {
  const broken = (error) => finish(error || new Error('the proxy closed the connection'));
  const finish = (error) => {
    socket.removeListener('error', broken);
    socket.removeListener('close', broken);
    if (error) socket.on('error', () => {}).destroy();
    done(error);
  };
  socket.on('error', broken);
  socket.on('close', broken);
  return finish;
}

// Newer versions give their default agents the proxy themselves; those open tunnels of their own.
const isLeftToNode = (agent, options) => Boolean(options.socketPath || agent.options?.proxyEnv);

const connectPlainly = http.Agent.prototype.createConnection;
const connectByTls = https.Agent.prototype.createConnection;

http.Agent.prototype.createConnection = function createConnection(options, done) {
  if (isLeftToNode(this, options)) return connectPlainly.call(this, options, done);
  tunnel(options.host, options.port || 80, (error, socket) => done(error, error ? undefined : socket));
  return undefined;
};

https.Agent.prototype.createConnection = function createConnection(options, done) {
  if (isLeftToNode(this, options) || options.socket) return connectByTls.call(this, options, done);
  tunnel(options.host, options.port || 443, (error, socket) => {
    if (error) done(error);
    else done(null, connectByTls.call(this, { ...options, path: undefined, socket }));
  });
  return undefined;
};

/** Connect for undici, which is what `fetch` is made of. */
function connect({ hostname: host, port: target, protocol, servername }, done) {
  const secure = protocol === 'https:';
  tunnel(host, target || (secure ? 443 : 80), (error, socket) => {
    if (error || !secure) {
      done(error, error ? null : socket);
      return;
    }
    const options = { socket, host, servername: servername || (net.isIP(host) ? '' : host), ALPNProtocols: ['http/1.1'] };
    const encrypted = tls.connect(options, () => finish(null));
    const finish = once(encrypted, (problem) => done(problem, problem ? null : encrypted));
  });
}

if (typeof globalThis.fetch === 'function') {
  const dispatcher = Symbol.for('undici.globalDispatcher.1');
  void globalThis.Request; // makes Node load undici, which sets the dispatcher
  const { constructor: Agent } = globalThis[dispatcher];
  // EnvHttpProxyAgent is what NODE_USE_ENV_PROXY makes where it is known.
  if (Agent.name !== 'EnvHttpProxyAgent') globalThis[dispatcher] = new Agent({ connect });
}
