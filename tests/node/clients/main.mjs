// Runs clients one after the other, as it is told on stdin: `{client, url, legacy}` a line, a report a line.
// Starting Node and loading an SDK takes longer than all that a client does.
import { createInterface } from 'node:readline';

for await (const line of createInterface({ input: process.stdin })) {
  const { client, ...options } = JSON.parse(line);
  const { run } = await import(`./${client}.mjs`);
  process.stdout.write(`${JSON.stringify(await run(options))}\n`);
}
process.exit(0);
