// Sends a body to each of the URLs by every way that Node has, and prints what came back: {"fetch http://…": "…"}.
import http from 'node:http';
import https from 'node:https';

const [body, ...urls] = process.argv.slice(2);
const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };

function ask(url, agent) {
  const library = url.startsWith('https:') ? https : http;
  return new Promise((resolve, reject) => {
    const request = library.request(url, { method: 'POST', headers, agent }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (data) => (text += data)).on('end', () => resolve(text));
    });
    request.on('error', reject).end(body);
  });
}

const ways = {
  fetch: async (url) => (await fetch(url, { method: 'POST', headers, body })).text(),
  request: (url) => ask(url),
  'no agent': (url) => ask(url, false),
  'own agent': (url) => ask(url, new (url.startsWith('https:') ? https : http).Agent({ keepAlive: false })),
};

const seen = {};
for (const url of urls) {
  for (const [name, way] of Object.entries(ways)) {
    seen[`${name} ${url}`] = await way(url).catch((error) => `${error} ${error.cause ?? ''}`);
  }
}
console.log(JSON.stringify(seen));
process.exit(0); // some versions of Node keep the socket of a refused tunnel open
