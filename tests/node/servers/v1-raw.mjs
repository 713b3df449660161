// SDK 1.x on node:http: the transport reads the raw body itself.
import { refuse, serve } from './common.mjs';
import { handle } from './v1-common.mjs';

serve((req, res) => {
  if (new URL(req.url, 'http://localhost').pathname !== '/mcp') {
    refuse(res, 404, 'Not found');
    return;
  }
  handle(req, res).catch((error) => refuse(res, 500, String(error)));
});
